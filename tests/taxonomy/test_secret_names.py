"""Variables that look like secrets, by their names; the readers hand out no value."""

import pytest
from trace_builder import TraceBuilder

from nsys_llm.profile.capture import read_facts
from nsys_llm.profile.parquet_profile import ParquetProfile
from nsys_llm.profile.sqlite.sqlite_profile import SqliteProfile
from nsys_llm.taxonomy.secret_names import names_in, process_environment, secret_names


@pytest.mark.parametrize(
    "name",
    [
        *("HF_TOKEN", "WANDB_API_KEY", "OPENAI_APIKEY", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD"),
        *("GOOGLE_APPLICATION_CREDENTIALS", "db_passwd", "SLURM_JWT", "API_TOKENS"),
        "MAX_TOKENS_API_KEY",
    ],
)
def test_names_of_secrets_are_told(name):
    assert secret_names([name, "PATH", name]) == (name,)


@pytest.mark.parametrize(
    "name",
    [
        *("TOKENIZERS_PARALLELISM", "KEYBOARD", "GPG_KEY", "SSH_AUTH_SOCK", "PATH", "A B_KEY", ""),
        *("MAX_NUM_BATCHED_TOKENS", "MAX_TOKENS"),
    ],
)
def test_other_names_are_not(name):
    assert secret_names([name]) == ()


def test_names_within_one_text_are_those_that_have_a_value():
    assert names_in("A=1;B_KEY=;C=x=y;D_TOKEN=z") == ["A", "C", "D_TOKEN"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("A=1\0B_KEY=\0C=x=y;D=2\0", ["A", "C"]),
        ("LANG=C\0PWD=/root", ["LANG", "PWD"]),
        ("A=1;B=2", []),
        ("step=1\0", ["step"]),
        ("a range\0with k=v in it\0", []),
        ("LC_ALL\0LC_TIME\0", []),
        ("\0\0", []),
        ("", []),
    ],
)
def test_the_environment_of_a_process_is_told_by_its_form(text, names):
    assert process_environment(text) == names


@pytest.mark.parametrize("schema", ["3.7.2", "3.30.1"])
@pytest.mark.parametrize("kind", ["sqlite", "parquet"])
def test_reports_tell_names_and_no_values(tmp_path, kind, schema):
    report = TraceBuilder(schema=schema).kernel("a", start_ns=1, duration_ns=1)
    report.environment(HF_TOKEN="marker-1", EMPTY_KEY="", LANG="marker-2")
    report.process_environment(PAGER="marker-3", VAULT_TOKEN="marker-4;MORE_KEY=marker-5")
    if kind == "sqlite":
        opened = SqliteProfile(report.write_sqlite(tmp_path / "r.sqlite"))
    else:
        opened = ParquetProfile(report.write_parquet(tmp_path / "r_pqtdir"))
    with opened:
        assert opened.process_environments() == [["PAGER", "VAULT_TOKEN"]]
        facts = read_facts(opened)
    assert facts.secret_variables == ("HF_TOKEN", "VAULT_TOKEN")
    assert facts.environments_n == 1
    assert "marker" not in str(facts)
