r"""The trained models that come with the package: where they are, and whether they are whole."""

from __future__ import annotations

from pathlib import Path

from rove_lab.whole_files import sha256

__all__ = ["SHA256", "bundled_folder"]

# Of each model's weights, as results/byte_pair/record.json has them.
SHA256 = {
    "byte-rope": "c0259a09caef77b14b352e337fb79bf05595d4d934dc62f6deec7968f56f0109",
    "byte-rove": "198e605b398bcb2bf4cd3118d8af5e50bcf3f098eccfbc1bba7b2fe16182e1b9",
}
# Of what builds them: the same weights mean something else under another base or without RoVE.
CONFIG_SHA256 = {
    "byte-rope": "dd10d653e3315dcc698eae77181026cf67686187a246978d8d479d925918df6e",
    "byte-rove": "32ff0b3fac8f7ccafa44082083200fd9b8fccfda1a8b1866e95a856e72de2554",
}


def bundled_folder(name: str) -> Path:
    """The folder of a model that comes with the package, once its files have been checked.

    Args:
        name: Of the model, a key of ``SHA256``.

    Returns:
        The folder; it holds ``config.json`` and ``model.safetensors``.

    Raises:
        FileNotFoundError: If the installation lacks one of its files.
        ValueError: If there is no such model; says which there are. Or if a file is damaged.

    Example:
        >>> bundled_folder("byte-rove").name
        'byte-rove'
    """
    if name not in SHA256:
        raise ValueError(
            f"expected a model that comes with the package, {' or '.join(SHA256)}, got {name!r}: "
            "rove_lab.checkpoints.load_model reads your own from their folders."
        )
    folder = Path(__file__).resolve().parent / "byte_models" / name
    for file, hashes in (("model.safetensors", SHA256), ("config.json", CONFIG_SHA256)):
        path = folder / file
        if not path.is_file():
            raise FileNotFoundError(f"expected {path}, got no such file: install rove-lab again.")
        if (found := sha256(path)) != hashes[name]:
            raise ValueError(
                f"expected SHA-256 {hashes[name]} of {path}, got {found}: the file is damaged. "
                "Install rove-lab again."
            )
    return folder
