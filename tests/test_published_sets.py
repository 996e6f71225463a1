"""Laws of the named data sets: they are the published ones, and the downloader takes nothing else."""

import dataclasses
import gzip
import hashlib
import http.server
import os
import threading
import time

import numpy as np
import pytest
from test_data import BITS, MODES, RNG, refused, splits

from darn import data
from darn.data import _download, _store
from darn.data._upstream import KNOWN, File
from darn.errors import DarnError
from darn.files import _retrieve, retrieve

HERE = os.environ.get("DARN_DATA")
NET = "https://example.org/"

# name: columns, rows, means: the table of the data sets' README
PUBLISHED = {
    "adult": (123, (5000, 1414, 26147), (0.1127, 0.1128, 0.1128)),
    "connect4": (126, (16000, 4000, 47557), (0.3333, 0.3333, 0.3333)),
    "dna": (180, (1400, 600, 1186), (0.2537, 0.2527, 0.2514)),
    "mushrooms": (112, (2000, 500, 5624), (0.1875, 0.1875, 0.1875)),
    "nips": (500, (400, 100, 1240), (0.3678, 0.3656, 0.3665)),
    "ocr_letters": (128, (32152, 10000, 10000), (0.2197, 0.2206, 0.2187)),
    "web": (300, (14000, 3188, 32561), (0.0388, 0.0392, 0.0388)),
    "binarized_mnist": (784, (50000, 10000, 10000), (0.1306, 0.1311, 0.1325)),
    "rcv1": (150, (40000, 10000, 150000), None),
    "rcv1_valid10k": (150, (8000, 1000, 1000), None),
}


def stored(name):
    """The arrays of a real set, or a skip where the machine has none."""
    if not HERE or not _store.set_path(name).is_file():
        pytest.skip(f"DARN_DATA has no {name}")
    return _store.read_known(name, download=False)[0]


# ---- the published sets


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_set(name):
    stored(name)
    n, rows, means = PUBLISHED[name]
    s = data.load(name, download=False)
    assert (s.train.n, tuple(map(len, splits(s).values()))) == (n, rows)
    assert (s.name, s.binarize) == (name, None)
    if KNOWN[name].sha256:
        assert s.sha256 == KNOWN[name].sha256
    if means:
        assert tuple(round(float(r.unpack().mean()), 4) for r in splits(s).values()) == means
    np.testing.assert_array_equal(data.load_rows(name).values, s.test.values)
    np.testing.assert_array_equal(data.load_rows(name, split="valid", n=n).values, s.valid.values)
    refused(lambda: data.load_rows(name, n=n + 1), str(n), str(n + 1))
    refused(lambda: data.load_rows(name, split="rest"), "rest")
    refused(lambda: data.load(name, labels=0), "labels")


def test_mnist():
    arrays = stored("mnist")
    refused(lambda: data.load("mnist"), *MODES)
    s = data.load("mnist", binarize="dynamic", download=False)
    assert [len(r) for r in splits(s).values()] == [50000, 10000, 10000]
    assert [r.grey for r in splits(s).values()] == [True, False, False]
    np.testing.assert_array_equal(s.train.values, arrays["train"][:50000])
    np.testing.assert_array_equal(s.valid.labels, arrays["train_label"][50000:])
    assert round(float(s.test.unpack().mean()), 2) == 0.13
    assert s.shape == (28, 28)


def test_digits():
    s = data.load("digits")
    assert [len(r) for r in splits(s).values()] == [1297, 200, 300]
    assert (s.shape, s.binarize, s.train.n) == ((8, 8), "threshold", 64)
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    order = np.random.RandomState(0).permutation(len(X))
    np.testing.assert_array_equal(s.test.unpack(), X[order[-300:]] >= 8)
    np.testing.assert_array_equal(s.test.labels, y[order[-300:]])
    grey = data.load("digits", binarize="intensity", labels="label")
    np.testing.assert_array_equal(grey.train.values, np.rint(X[order[:1297]] * 255 / 16))
    assert grey.train.context.shape == (1297, 10)
    for mode in ("static", "dynamic"):
        assert data.load("digits", binarize=mode).binarize == mode
        np.testing.assert_array_equal(
            data.load_rows("digits", binarize=mode).values, data.load("digits", binarize=mode).test.values
        )


ATARI = [f"atari/{game}{split}" for game in data.GAMES for split in ("", "/episodes")]


def test_names_and_describe(tmp_path, monkeypatch):
    assert sorted(data.names()) == sorted([*PUBLISHED, "mnist", "digits", *ATARI])
    monkeypatch.setenv("DARN_DATA", str(tmp_path))
    assert data.data_dir() == tmp_path
    listed = {d["name"]: d for d in data.describe()}
    assert list(listed) == data.names()
    assert [d for d in listed if listed[d]["present"]] == ["digits"]
    for name, (n, rows, _) in PUBLISHED.items():
        assert (listed[name]["columns"], tuple(listed[name]["rows"])) == (n, rows)
    monkeypatch.delenv("DARN_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data.data_dir() == tmp_path / "cache" / "darn"
    monkeypatch.setenv("DARN_DATA", "~nobody-of-this-name/sets")
    with pytest.raises(DarnError, match="set DARN_DATA to the full path"):
        data.data_dir()


def test_a_pipe_in_place_of_a_set_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("DARN_DATA", str(tmp_path))
    os.mkfifo(tmp_path / "dna.npz")
    with pytest.raises(DarnError, match="is a device or a pipe"):
        data.load("dna")


# ---- the downloader, with a folder for the network


def svm_text(X):
    return "".join("+1 " + " ".join(f"{j + 1}:1" for j in np.flatnonzero(r)) + "\n" for r in X).encode()


def unpacked(name, split):
    return np.unpackbits(stored(name)[split], axis=1, count=KNOWN[name].n)


def source_files(name):
    """The public files of a set, rebuilt from its packed arrays: {key: (bytes, ending)}."""
    known, z = KNOWN[name], stored(name)
    if known.form == "text":
        blank = name == "binarized_mnist"
        texts = {s: _download.debd_text(z[s], known.n) for s in known.files}
        return {s: (t.replace(b",", b" ") if blank else t, ".data") for s, t in texts.items()}
    if known.form == "divide":
        rows = np.concatenate([z[s] for s in ("train", "valid", "test")])
        return {"valid": (_download.debd_text(rows, known.n), ".data")}
    if known.form == "libsvm":
        order = np.random.RandomState(1234).permutation(17188)
        X = np.empty((17188, known.n), np.uint8)
        X[order] = np.concatenate([unpacked(name, "train"), unpacked(name, "valid")])
        return {"w6a": (svm_text(X), ".txt"), "w6a.t": (svm_text(unpacked(name, "test")), ".t")}
    if known.form == "made":
        import io

        f = io.BytesIO()
        np.savez(f, **{f"{s}_data": unpacked(name, s).astype(np.float32) for s in ("train", "valid", "test")})
        return {"all": (f.getvalue(), ".npz")}
    heads = {"images_idx3": b"\0\0\x08\3" + b"\0" * 12, "labels_idx1": b"\0\0\x08\1" + b"\0" * 4}
    out = {}
    for stem, split in (("train", "train"), ("t10k", "test")):
        out[f"{stem}_images_idx3"] = (heads["images_idx3"] + z[split].tobytes(), ".gz")
        out[f"{stem}_labels_idx1"] = (heads["labels_idx1"] + z[f"{split}_label"].tobytes(), ".gz")
    return out


@pytest.fixture
def internet(tmp_path, monkeypatch):
    """Puts files behind addresses, points a set's table at them, and empties the data folder."""

    def from_folder(url, path, most):
        path.write_bytes((tmp_path / url.removeprefix(NET)).read_bytes())
        return path

    monkeypatch.setattr(_download, "retrieve", from_folder)

    def make(name, files, own_checksums=False):
        table = {}
        for key, (content, ending) in files.items():
            path = tmp_path / f"net_{key}{ending}"
            path.write_bytes(gzip.compress(content, 1) if ending == ".gz" else content)
            check = KNOWN[name].files[key].check
            if own_checksums:
                check = "sha256:" + hashlib.sha256(content).hexdigest()
            table[key] = File((f"{NET}{path.name}",), check)
        monkeypatch.setitem(KNOWN, name, dataclasses.replace(KNOWN[name], files=table))
        monkeypatch.setenv("DARN_DATA", str(tmp_path / "store"))
        return tmp_path / "store"

    return make


# The published files byte for byte where the packed set keeps their order; else the same rows, own bytes.
# mnist and binarized_mnist work the same way and are large.
@pytest.mark.parametrize(
    ("name", "exact"),
    [
        ("adult", True),
        ("mushrooms", True),
        ("nips", True),
        ("rcv1_valid10k", True),
        ("connect4", False),
        ("ocr_letters", False),
        ("dna", False),
        ("web", False),
        pytest.param("binarized_mnist", True, marks=pytest.mark.slow),
        pytest.param("mnist", False, marks=pytest.mark.slow),
    ],
)
def test_download(name, exact, internet, capsys):
    z = stored(name)
    store = internet(name, source_files(name), own_checksums=not exact)
    refused(lambda: data.load(name, download=False, binarize="intensity"), name, str(store))
    assert not store.exists()
    mode = "intensity" if name == "mnist" else None
    s = data.load(name, binarize=mode)
    assert "downloading" in capsys.readouterr().err
    if name != "mnist":
        for k, r in splits(s).items():
            np.testing.assert_array_equal(r.values, z[k])
    files = [p for p in store.rglob("*") if p.is_file()]
    assert files == [_store.set_path(name)]
    data.load(name, binarize=mode, download=False)  # from the folder now
    assert "downloading" not in capsys.readouterr().err


def test_download_takes_rows_in_another_order(internet):
    z = dict(stored("connect4"))
    z["test"] = z["test"][::-1]
    known = KNOWN["connect4"]
    files = {s: (_download.debd_text(z[s], known.n), ".data") for s in known.files}
    internet("connect4", files, own_checksums=True)
    np.testing.assert_array_equal(data.load("connect4").test.values, z["test"])


def test_the_downloader_over_a_real_connection(tmp_path, monkeypatch):
    """Whole, cut, too large, too slow, gone, and sent on to an address that is not https."""
    whole = b"0,1\n" * 100
    sent = {
        "/a": (200, {}),
        "/cut": (200, {"Content-Length": "500"}),
        "/slow": (200, {}),
        "/on": (302, {"Location": "/a"}),
    }

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            status, head = sent.get(self.path, (404, {}))
            self.send_response(status)
            for k, v in ({"Content-Length": str(len(whole))} | head).items():
                self.send_header(k, v)
            self.end_headers()
            for piece in (whole[i : i + 4] for i in range(0, len(whole), 4)):
                self.wfile.write(piece)
                if self.path == "/slow":
                    time.sleep(0.01)

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url, path = f"http://127.0.0.1:{server.server_port}", tmp_path / "a"
        try:
            assert retrieve(f"{url}/a", path, 400).read_bytes() == whole
            cases = {"/on": "not https", "/none": "404", "/cut": "broke off"}
            for place, said in cases.items():
                with pytest.raises(OSError, match=said):
                    retrieve(url + place, path, 400)
            with pytest.raises(OSError, match="larger than"):
                retrieve(f"{url}/a", path, 399)
            monkeypatch.setattr(_retrieve, "LONGEST", 0.1)
            began = time.monotonic()
            with pytest.raises(OSError, match="takes longer"):
                retrieve(f"{url}/slow", path, 400)
            assert time.monotonic() - began < 0.8  # the whole answer takes a second
        finally:
            server.shutdown()


def test_all_addresses_are_https():
    urls = [url for known in KNOWN.values() for f in known.files.values() for url in f.urls]
    assert urls
    assert all(url.startswith("https://") for url in urls)


def test_git_blob_ids():
    """The checksum of files never seen, on one that was: the id of `git hash-object`, and of a real blob."""
    assert _download.has_checksum(b"hello\n", "git:ce013625030ba8dba906f756967f9e9ca394464a")
    z = stored("rcv1_valid10k")
    text = _download.debd_text(np.concatenate([z[s] for s in ("train", "valid", "test")]), 150)
    assert _download.has_checksum(text, "git:890d4558bcb738690ef775a4fbdeb7ef9511d377")


def test_rcv1_is_known_by_its_text(internet):
    """No content id of rcv1 is at hand: its rows are checked as text, here on a small stand-in."""
    X = {s: np.packbits(RNG.randint(0, 2, (5, 150)).astype(np.uint8), axis=1) for s in ("train", "valid", "test")}
    store = internet("rcv1", {s: (_download.debd_text(x, 150), ".data") for s, x in X.items()}, own_checksums=True)
    KNOWN["rcv1"] = dataclasses.replace(KNOWN["rcv1"], rows=(5, 5, 5))
    np.testing.assert_array_equal(data.load("rcv1").test.values, X["test"])
    X["test"] = X["test"] ^ np.uint8(128)
    np.savez(store / "rcv1.npz", **X, n=150)
    refused(lambda: data.load("rcv1"), "rcv1.npz", "checksum")


def small(internet, spoil=lambda b: b):
    """A made-up mushrooms of 30 rows, whose valid file is spoilt on its way."""
    X = {s: np.packbits(BITS[i : i + 10], axis=1) for i, s in ((0, "train"), (10, "valid"), (20, "test"))}
    files = {s: (_download.debd_text(x, 11), ".data") for s, x in X.items()}
    store = internet("mushrooms", files, own_checksums=True)
    path = store.parent / "net_valid.data"
    path.write_bytes(spoil(path.read_bytes()))
    KNOWN["mushrooms"] = dataclasses.replace(
        KNOWN["mushrooms"], n=11, rows=(10, 10, 10), sha256=None, content=_download.content_id(X)
    )
    return store, X


@pytest.mark.parametrize("spoil", [lambda b: b[:-7], lambda b: b"1" + b[1:] if b[:1] == b"0" else b"0" + b[1:]])
def test_wrong_or_cut_download_leaves_nothing(spoil, internet):
    store, _ = small(internet, spoil)
    refused(lambda: data.load("mushrooms"), "mushrooms", "net_valid.data", "checksum", "DARN_DATA", str(store))
    assert not store.exists() or not list(store.iterdir())


def test_no_network(internet):
    store, _ = small(internet)
    (store.parent / "net_valid.data").unlink()
    refused(lambda: data.load("mushrooms"), "net_valid.data failed", "DARN_DATA", str(store))
    refused(lambda: data.load_rows("mushrooms"), "net_valid.data failed")
    assert not store.exists()


@pytest.mark.parametrize("scheme", ["http", "file", "ftp"])
def test_only_https_is_asked(scheme, internet):
    small(internet)
    files = {s: File((f.urls[0].replace("https", scheme),), f.check) for s, f in KNOWN["mushrooms"].files.items()}
    KNOWN["mushrooms"] = dataclasses.replace(KNOWN["mushrooms"], files=files)
    refused(lambda: data.load("mushrooms"), f"{scheme}://example.org/net_train.data is not an https address")


@pytest.mark.parametrize("ending", [".data", ".gz"])
def test_a_file_too_large_is_refused(ending, internet, monkeypatch):
    """As it comes, and as it is unpacked: a packed file of 4 kB may hold much more."""
    monkeypatch.setattr(_download, "LIMIT", 5000)
    files = {s: (bytes(4_000_000 if ending == ".gz" else 6000), ending) for s in KNOWN["mushrooms"].files}
    internet("mushrooms", files, own_checksums=True)
    refused(lambda: data.load("mushrooms"), f"net_train{ending} failed", "larger than")


def test_mirrors_are_tried_in_turn(internet):
    store, X = small(internet)
    gone = f"{NET}gone.data"
    bad = store.parent / "bad.data"
    bad.write_bytes(b"0,1\n")
    files = {s: File((gone, f"{NET}bad.data", *f.urls), f.check) for s, f in KNOWN["mushrooms"].files.items()}
    KNOWN["mushrooms"] = dataclasses.replace(KNOWN["mushrooms"], files=files)
    np.testing.assert_array_equal(data.load("mushrooms").train.values, X["train"])


def test_download_with_other_rows_is_refused(internet):
    store, _ = small(internet)
    KNOWN["mushrooms"] = dataclasses.replace(KNOWN["mushrooms"], content="0" * 64)
    refused(lambda: data.load("mushrooms"), "mushrooms", "not the expected")
    assert not store.exists()


def test_no_half_written_file(internet, monkeypatch):
    store, _ = small(internet)

    def full(f, **arrays):
        f.write(b"PK half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", full)
    refused(lambda: data.load("mushrooms"), "No space left", "DARN_DATA")
    assert list(store.iterdir()) == []


@pytest.mark.parametrize("harm", ["cut", "bent", "other", "text"])
def test_damaged_set_is_refused(harm, internet):
    store, X = small(internet)
    data.load("mushrooms")
    path = store / "mushrooms.npz"
    content = bytearray(path.read_bytes())
    if harm == "cut":
        content = content[:-30]
    elif harm == "bent":
        content[120] ^= 255
    elif harm == "text":
        content = b"404: Not Found"
    path.write_bytes(content)
    if harm == "other":
        np.savez(path, **{**X, "test": X["train"]}, n=11)
    refused(lambda: data.load("mushrooms"), str(path), "checksum", "delete it")


def test_real_set_under_another_name_is_refused(tmp_path, monkeypatch):
    stored("dna")
    content = _store.set_path("dna").read_bytes()
    monkeypatch.setenv("DARN_DATA", str(tmp_path))
    (tmp_path / "nips.npz").write_bytes(content)
    refused(lambda: data.load("nips"), "nips.npz", "delete it")
