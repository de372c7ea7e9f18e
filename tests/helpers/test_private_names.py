"""The search for private names finds each way in which a file can touch one."""

from tests.helpers.private_names import files_that_import, is_private, names_of, names_used, parameters


class Base:
    """A class of a library."""

    def __init__(self) -> None:
        self._set = 1
        self._typed: int = 2
        self.public = self._read_only == 3  # a comparison sets nothing

    def _method(self, one: int, two: int = 0) -> None:
        pass


class Child(Base):
    """Inherits them."""


def test_a_file_is_searched_for_calls_overrides_and_imports(tmp_path):
    file = tmp_path / "file.py"
    file.write_text(
        "from library import _imported, public\n"
        "class Mine(Theirs):\n"
        "    def _overridden(self):\n"
        "        super()._called()\n"
        "        return self._read['x'] + self.__class__.__name__\n"
    )
    assert names_used([file]) == {"_imported", "_overridden", "_called", "_read"}


def test_a_file_imports_a_library_or_a_part_of_it(tmp_path):
    for name, text in {"a": "import lib", "b": "  from lib.part import x", "c": "import library", "d": "# lib"}.items():
        (tmp_path / f"{name}.py").write_text(text)
    assert [file.stem for file in files_that_import("lib", tmp_path)] == ["a", "b"]


def test_a_class_has_its_methods_and_what_they_set():
    names = names_of(Child)
    assert {"_method", "_set", "_typed"} <= names
    assert not names & {"_read_only", "public", "__init__"}


def test_two_underscores_are_pythons():
    assert [is_private(name) for name in ("_one", "__two__", "none")] == [True, False, False]


def test_parameters_are_those_of_a_call():
    assert parameters(Base._method) == ("one", "two")
