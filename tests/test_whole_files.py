"""Files and folders that are whole or not there at all."""

import errno
import fcntl
import hashlib
import json
import os
from pathlib import Path

import pytest

from rove_lab import checkpoints, shard_index
from rove_lab.whole_files import read_json, sha256, whole_file, write_folder


def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    path, forced = tmp_path / "a", []
    monkeypatch.setattr("os.fsync", lambda number: forced.append(path.exists()))
    with whole_file(path) as file:
        file.write(b"after")
    assert forced == [False, True], "the content, then the folder with its name"


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"before")
    with pytest.raises(TypeError, match="bytes-like"), whole_file(path) as file:
        file.write(b"half of") and file.write("it")
    assert [each.name for each in tmp_path.iterdir()] == ["a"]
    assert path.read_bytes() == b"before"
    with whole_file(path) as file:
        file.write(b"after")
        assert path.read_bytes() == b"before"
    assert path.read_bytes() == b"after"
    assert [each.name for each in tmp_path.iterdir()] == ["a"]


def test_a_folder_appears_whole_or_not_at_all(tmp_path):
    def half(place):
        (place / "a").write_text("new")
        raise OSError(28, "No space left on device")

    write_folder(tmp_path / "mine", lambda place: (place / "a").write_text("before"))
    with pytest.raises(OSError, match=r"expected room to write .*mine, got: .*No space left"):
        write_folder(tmp_path / "mine", half)
    assert (tmp_path / "mine" / "a").read_text() == "before"
    assert [each.name for each in tmp_path.iterdir()] == ["mine"]
    write_folder(tmp_path / "mine", lambda place: (place / "b").write_text("after"))
    assert [each.name for each in (tmp_path / "mine").iterdir()] == ["b"]


def test_a_folder_that_cannot_be_renamed_leaves_the_one_before(tmp_path, monkeypatch):
    def rename(path, target):
        if path.name.endswith(".partial"):
            raise OSError(1, "Operation not permitted")
        return renamed(path, target)

    write_folder(tmp_path / "mine", lambda place: (place / "a").write_text("before"))
    renamed = Path.rename
    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(OSError, match="Operation not permitted"):
        write_folder(tmp_path / "mine", lambda place: (place / "a").write_text("after"))
    assert (tmp_path / "mine" / "a").read_text() == "before"
    assert [each.name for each in tmp_path.iterdir()] == ["mine"]


def test_a_folder_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    forced = []
    monkeypatch.setattr("os.fsync", lambda number: forced.append((tmp_path / "mine").exists()))
    write_folder(tmp_path / "mine", lambda place: (place / "a").write_text("text"))
    assert forced == [False, True], "the file in it, then the folder around it"


def test_where_only_files_open_for_writing_are_forced_to_the_disk(tmp_path, monkeypatch):
    """As on Windows, whose _commit refuses a descriptor that only reads; a folder's always does."""
    forced = []

    def fsync(number):
        if fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "Bad file descriptor")
        forced.append(number)

    monkeypatch.delattr("os.O_DIRECTORY")
    monkeypatch.setattr("os.fsync", fsync)
    for text in ("first", "second"):
        write_folder(tmp_path / "mine", lambda place, text=text: (place / "a").write_text(text))
        assert (tmp_path / "mine" / "a").read_text() == text
    with whole_file(tmp_path / "b") as file:
        file.write(b"text")
    assert len(forced) == 3
    assert sorted(each.name for each in tmp_path.iterdir()) == ["b", "mine"]


def test_a_hash_is_of_all_bytes(tmp_path):
    for content in (b"", b"a" * 300_000):
        (tmp_path / "a").write_bytes(content)
        assert sha256(tmp_path / "a") == hashlib.sha256(content).hexdigest()


def test_an_object_comes_back_and_nothing_else_does(tmp_path):
    file = tmp_path / "a.json"
    with pytest.raises(FileNotFoundError, match=r"expected a\.json in .*, got none"):
        read_json(file)
    file.write_text(json.dumps({"ψ": [1, None]}, ensure_ascii=False), encoding="utf-8")
    assert read_json(file) == {"ψ": [1, None]}
    for text, words in (("{", "got a damaged file"), ("[]", "expected names and values .* list")):
        file.write_text(text)
        with pytest.raises(ValueError, match=words):
            read_json(file)


def test_they_are_where_they_were():
    assert shard_index.whole_file is whole_file
    assert checkpoints.write_folder is write_folder
    assert checkpoints.sha256 is sha256
    assert checkpoints.read_json is read_json
