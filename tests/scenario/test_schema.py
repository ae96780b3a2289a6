import json

from rapid_llm.scenario import schema


def test_schema_is_of_what_a_user_writes():
    found = schema()
    assert set(found["properties"]) >= {"model", "system", "workload", "parallelism", "precision", "base"}
    assert found["additionalProperties"] is False
    assert "dgx-h100" in found["properties"]["system"]["anyOf"][0]["enum"]
    assert "required" not in found["$defs"]["accelerator"]
    capacity = found["$defs"]["system.MemoryLevel"]["properties"]["capacity"]
    assert capacity["type"] == "string"
    json.dumps(found)


def test_every_reference_is_defined():
    found = schema()
    text = json.dumps(found)
    references = {part.split('"')[0] for part in text.split('"$ref": "#/$defs/')[1:]}
    assert len(references) > 20
    for reference in references:
        assert reference in found["$defs"], reference
