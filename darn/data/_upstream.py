"""The published sets: their sizes, checksums and public addresses."""

from __future__ import annotations

from dataclasses import dataclass

GITHUB = "https://raw.githubusercontent.com"
DEBD = f"{GITHUB}/UCLA-StarAI/Density-Estimation-Datasets/37d53c1a8ba488d0a39e8c64bd3387577080b143/datasets"
MADE = f"{GITHUB}/mgermain/MADE/514849eb9451311c02049f9e2d9a17fac589996a/datasets"
IPALM = f"{GITHUB}/zhengqu-x/IPALM/54267fd6fcdec1e84c99f939273e1609ac6b0354/libsvm"
SYLVESTER = f"{GITHUB}/riannevdberg/sylvester-flows/32dde9b7d696fee94f946a338182e542779eecfe/data/MNIST_static"
TORONTO = "https://www.cs.toronto.edu/~larocheh/public/datasets/binarized_mnist"
MNIST = (
    "https://storage.googleapis.com/cvdf-datasets/mnist",
    "https://ossci-datasets.s3.amazonaws.com/mnist",
)
NADE = "in the splits of Larochelle & Murray (2011)"


@dataclass(frozen=True)
class File:
    """A public file: addresses to try in turn, and the one checksum all of them must have.

    `check` is "sha256:..." or, if the file itself was not available when this was written, "git:...", its git
    blob id. For a .gz file it is of the unpacked bytes, since mirrors compress differently.
    """

    urls: tuple[str, ...]
    check: str


@dataclass(frozen=True)
class Known:
    """A published set. `sha256` is of the packed npz as first made, `content` of its rows in any order.

    Only the rows can be compared: an npz packed from downloaded files has different zip bytes, and for connect4
    (test) and ocr_letters (train) the published files have the same rows in another order. The full rcv1 was not
    available, so it has neither; written as text, its splits must have the checksums of `files`.
    """

    n: int
    rows: tuple[int, int, int]
    form: str  # how `files` become arrays, see _download
    files: dict[str, File]
    about: str
    sha256: str | None = None
    content: str | None = None
    shape: tuple[int, int] | None = None
    folder: str = ""


def debd(name: str, **checks: str) -> dict[str, File]:
    return {s: File((f"{DEBD}/{name}/{name}.{s}.data",), check) for s, check in checks.items()}


def amat(**checks: str) -> dict[str, File]:
    name = "binarized_mnist"
    return {
        s: File(
            (f"{TORONTO}/{name}_{s}.amat", f"{DEBD}/{name}/{name}.{s}.data", f"{SYLVESTER}/{name}_{s}.amat"),
            check,
        )
        for s, check in checks.items()
    }


def idx(**checks: str) -> dict[str, File]:
    return {k: File(tuple(f"{m}/{k.replace('_', '-')}-ubyte.gz" for m in MNIST), c) for k, c in checks.items()}


KNOWN: dict[str, Known] = {
    "adult": Known(
        n=123,
        rows=(5000, 1414, 26147),
        form="text",
        files=debd(
            "adult",
            train="sha256:5590ab772dd51ed1b29bb972d2b416a58aee902b88be2f89b8c77f28f3e3db77",
            valid="sha256:dbd7472c04c648e988264b90b76dc086294958ef4b395ee916090b2b82146e59",
            test="sha256:169b5ea932df510bd09dd199013c897aef9a1b5325688380697c85494d7bb14f",
        ),
        about=f"UCI Adult, LIBSVM coding, {NADE}",
        sha256="4a5cc43ae04e278c7e52e19ed33618e6127c992c21fca31b15b38f851643a03b",
        content="f979560f88b53de76fd1c2b0373272658c4f4dc4a3277fda8e08a65ca5421d9b",
    ),
    "connect4": Known(
        n=126,
        rows=(16000, 4000, 47557),
        form="text",
        files=debd(
            "connect4",
            train="sha256:1cf1f300a290a33e15f8989364dd7e87c008699c3627e05cc70a5f2dd01cafd8",
            valid="sha256:e4657afaf1b6880aed84b64e348d2d502b32d90ad3177bea730dd5e0384fd3b8",
            test="git:088e6da63a6e9d5cab1af67518fd6b202cef6f51",
        ),
        about=f"UCI Connect-4 positions, {NADE}",
        sha256="b26925dcf4029596559b0ff608192ca8bbabaa7eca6442d5a645b074aba6c22a",
        content="bcb80f67a03f8ad3983c66b0fff2e385130cd3c6b8d57264959e00a24085c92b",
    ),
    "dna": Known(
        n=180,
        rows=(1400, 600, 1186),
        form="made",
        files={
            "all": File(
                (f"{MADE}/dna.npz",),
                "sha256:df2d2e7ce1469edfead15e41024e108d64f1b4633cfecfc40ef7107cc22c895c",
            )
        },
        about=f"Statlog DNA (UCI splice junctions), {NADE}",
        sha256="ca5caf93003f60afa5740d09afbb289c4abe1036d089e8daef68133a9a7e86b6",
        content="cf11759d9bdf0c6b132f4f801459ef138fafe300f8562ccc2d2fb7c0342cd3f1",
    ),
    "mushrooms": Known(
        n=112,
        rows=(2000, 500, 5624),
        form="text",
        files=debd(
            "mushrooms",
            train="sha256:465c712c066bbbee3ccceded24bbe42b4c379df67b524e28cce9bf3a8b83f27b",
            valid="sha256:5a067e6854df71623415e6adc8e913cbff766637a324788882ba800907aa5385",
            test="sha256:313c5f04b5d0a18bee2f2ffa264be265d09f5362aad6f714637acd9552f81aa0",
        ),
        about=f"UCI Mushroom, LIBSVM coding, {NADE}",
        sha256="c7337f2acfb267f2ca76502c2eededef8731e710afde6c48758560ae86b32410",
        content="5f29ecc65da636a87cf78af4dd6492a20836d7b4ec27e12d29cf7d8e59ccc0b7",
    ),
    "nips": Known(
        n=500,
        rows=(400, 100, 1240),
        form="text",
        files=debd(
            "nips",
            train="sha256:4d744cb1f2c725405bff6ef6878df06eafbbc2a91f0510e0f3d8a508b05ec7bb",
            valid="sha256:b06acd8e6a701d63d4e58b5076c11c59bcd0343fb9b1fbb5997459d3e6b8ca96",
            test="sha256:48711bdaffbd43aa439679785e19d9cc80c64a157fa84eadc5dce60ee4edf7bc",
        ),
        about=f"words of NIPS 0-12 papers, {NADE}",
        sha256="cf1dc8738c691c3de7c35d99b59c0c34e9000a92eb736f502167b6b9afd51f7a",
        content="33ff96d50936c5fd34abcd37bfe19d3493e06db8c83ca424772011f079586a2c",
    ),
    "ocr_letters": Known(
        n=128,
        rows=(32152, 10000, 10000),
        form="text",
        files=debd(
            "ocr_letters",
            train="git:5deb8ce789bfb4f94849b1b5f57e7c841ec9f538",
            valid="sha256:b28ca9c39bb94fc3b0aeb3197304547bb066daaad0a1cce3da9749d068b74133",
            test="sha256:63c77682a932c5e5e04a429aba8dc7db5f942a87d549a8228fa144ec5ae998fb",
        ),
        about=f"handwritten letters of Kassel and Taskar, {NADE}",
        sha256="445ac1b971ea4ae0f79d6164276d58dc11900962154d64d9f5663ea548a042d7",
        content="ea398552adf7e4a5a05e821c2a9a1b320185c306ed0131c11b09bba3decfdd0b",
        shape=(16, 8),
    ),
    "rcv1": Known(
        n=150,
        rows=(40000, 10000, 150000),
        form="text",
        files=debd(
            "rcv1",
            train="git:25ee49d9df5566669d5994db5acf32844d8f4f7b",
            valid="sha256:d3a9c4b4d67fac28fcdf979acbc471b6ed688fce0c1cd7949379dd291021312e",
            test="git:0d9b096f4b8a62dec4634f3f87a73e292b5cffc8",
        ),
        about=f"words of RCV1 news stories, {NADE}",
    ),
    "web": Known(
        n=300,
        rows=(14000, 3188, 32561),
        form="libsvm",
        files={
            "w6a": File(
                (f"{IPALM}/w6a.txt",),
                "sha256:0db197939896da01e6677f8dc39fe824dffcb75c185bd681bb870d33c93c8f82",
            ),
            "w6a.t": File(
                (f"{IPALM}/w6a.t",), "sha256:8dea4842824392911f095fbc8b5aa764bb173a12bdc43cc07283ba13854d72c6"
            ),
        },
        about="LIBSVM w6a (divided 14000/3188 by RandomState(1234), not the published division) and w6a.t",
        sha256="75a46a90b96ef3b3db2688ab8c41f430618fe430c59b8c2fa270e9ffed8e7c06",
        content="94416f5292a9007985c13aaf7572b5247fb0b44695579f7ee596b60fa1235d91",
    ),
    "binarized_mnist": Known(
        n=784,
        rows=(50000, 10000, 10000),
        form="text",
        files=amat(
            train="sha256:ad693b29f94c14277b095f5238ddefbbdaaae0939789dd2f4f0205278cee3e4d",
            valid="sha256:1de3d397c40fe8eeb33dafd4099a1f665ec01e96d9be234aaeeac8a34930e2e2",
            test="sha256:e6687bfea3f820c174f33b7865140b2a2dd2930ef786f35d45795fc193b5ab2c",
        ),
        about="MNIST binarised by Salakhutdinov & Murray (2008); test rows are sorted by digit",
        sha256="649d44fcc3419b7e362076ef664e5dcad6c1626eece0f7f32000252a9729169e",
        content="d712bfefb3a950c297fc0df203aa772e11dfede123d1e9225e7da7544845ab99",
        shape=(28, 28),
    ),
    "mnist": Known(
        n=784,
        rows=(50000, 10000, 10000),
        form="idx",
        files=idx(
            train_images_idx3="sha256:ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            train_labels_idx1="sha256:65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            t10k_images_idx3="sha256:0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            t10k_labels_idx1="sha256:ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
        about="MNIST, grey; the last 10000 training images are valid",
        sha256="4547667a168b8904ec009d5fdefd43db667d4c6d77c9c3a42bcfefce2409adb6",
        content="bd19a3e4979bee143894ab8b812f411889399cc8a2e0170ef84735b1ff36040d",
        shape=(28, 28),
    ),
    "rcv1_valid10k": Known(
        n=150,
        rows=(8000, 1000, 1000),
        form="divide",
        files=debd(
            "rcv1",
            valid="sha256:d3a9c4b4d67fac28fcdf979acbc471b6ed688fce0c1cd7949379dd291021312e",
        ),
        about="the 10000 valid rows of RCV1 divided 8000/1000/1000; not comparable with published numbers",
        sha256="ffb9cdab33776b6f534c7cf8fe32698fccef3c5ccdc2cda7d8e3bfd10ac5919f",
        content="1559776cf34295004d228a35be9d2126d959cdb9b364fb2d14e39fbcda36d1b5",
        folder="extras",
    ),
}
