"""The files of a release agree on version, date and requirements, and their readers' schemas accept them."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from packaging.requirements import Requirement

from gputui import __version__
from table_tests import each_row
from unit.test_docs import tomllib

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
RECIPE = ROOT / "release" / "recipe.yaml"
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def _citation() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    return found


def test_every_file_with_the_version_has_this_one() -> None:
    assert metadata.version("gputui") == __version__
    assert PROJECT["project"]["dynamic"] == ["version"] and "version" not in PROJECT["project"]
    assert str(_citation()["version"]) == __version__
    assert str(yaml.safe_load(RECIPE.read_text())["context"]["version"]) == __version__


def test_the_first_section_of_the_changelog_is_this_version_with_its_date() -> None:
    first = re.search(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert first is not None
    assert first[1] == f"{__version__} ({_citation()['date-released']})"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", _citation()["date-released"])


def test_the_recipe_needs_what_the_package_needs() -> None:
    """conda's names are those of Python's packages, in lower case; a noarch package has no condition."""
    asked = (Requirement(each) for each in PROJECT["project"]["dependencies"])
    expected = {each.name.lower(): each.specifier for each in asked}
    run = [Requirement(each) for each in yaml.safe_load(RECIPE.read_text())["requirements"]["run"][1:-1]]
    assert {each.name: each.specifier for each in run} == expected


def test_rattler_build_renders_the_recipe() -> None:
    rattler_build = pytest.importorskip("rattler_build")
    oldest = PROJECT["project"]["requires-python"].removeprefix(">=")
    variants = rattler_build.VariantConfig.from_yaml(f'python_min: ["{oldest}"]')
    (rendered,) = rattler_build.Stage0Recipe.from_file(RECIPE).render(variants)
    recipe = rendered.recipe.to_dict()
    assert recipe["package"] == {"name": "gputui", "version": __version__}
    assert recipe["source"][0]["path"].endswith(f"gputui-{__version__}.tar.gz")
    assert f"python >={oldest}" in recipe["requirements"]["run"]
    (script,) = PROJECT["project"]["scripts"].items()
    assert recipe["build"]["python"]["entry_points"] == [" = ".join(script)]


# Files that others read.


def published_schema(name: str) -> dict[str, Any]:
    """A schema of SchemaStore's, which check-jsonschema has; skips without it."""
    spec = importlib.util.find_spec("check_jsonschema")
    if spec is None or spec.origin is None:
        pytest.skip("check-jsonschema is not installed")
    file = Path(spec.origin).parent / "builtin_schemas" / "vendor" / f"{name}.json"
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def validate(document: object, schema: dict[str, Any]) -> None:
    jsonschema.validators.validator_for(schema, jsonschema.Draft7Validator)(schema).validate(document)


def test_the_citation_is_valid() -> None:
    validate(_citation(), published_schema("citation-file-format"))


@each_row("form", FORMS, ids=lambda form: form.stem)
def test_a_form_for_issues_is_valid(form: Path) -> None:
    kind = "github-issue-config" if form.stem == "config" else "github-issue-forms"
    validate(yaml.safe_load(form.read_text()), published_schema(kind))


def test_every_form_for_issues_asks_what_doctor_says() -> None:
    forms = [yaml.safe_load(form.read_text()) for form in FORMS if form.stem != "config"]
    assert len(forms) == 3
    for form in forms:
        asked = {each["attributes"].get("label"): each for each in form["body"]}
        assert asked["gputui doctor --json"]["attributes"]["render"] == "json"


def test_hadolint_has_nothing_to_say_of_the_container() -> None:
    hadolint = Path(sys.executable).parent / "hadolint"
    if not hadolint.exists():
        pytest.skip("hadolint is not installed")
    words = [hadolint, "--no-color", ROOT / "release" / "Containerfile"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_container_is_made_of_the_files_that_the_wheel_is_made_of() -> None:
    lines = (ROOT / "release" / "Containerfile").read_text().splitlines()
    copied = {
        word
        for line in lines
        if line.startswith("COPY ") and "--from" not in line
        for word in line.split()[1:-1]
    }
    needed = {
        path.split("/")[0] for path in PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]
    }
    assert copied == {
        *needed,
        "pyproject.toml",
        PROJECT["project"]["readme"],
        *PROJECT["project"]["license-files"],
    }
