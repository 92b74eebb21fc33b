"""Paths that no kernel takes are the user's mistake, with the key named, whatever takes them."""

from __future__ import annotations

import pytest

from laboratory import Laboratory

LOAD = '[workload.load]\ncommand = {{ argv = ["true"] }}'
DIRECTORY = 'stack = [{{ layer = "directory" }}]'
PLACES = {
    "path": f'stack = [{{{{ layer = "device", path = "{{odd}}" }}}}]\n{LOAD}',
    "wipe": f'stack = [{{{{ layer = "device", path = "/dev/x", wipe = "{{odd}}" }}}}]\n{LOAD}',
    "copy": f'stack = [{{{{ layer = "file", copy = "{{odd}}" }}}}, {{{{ layer = "loop" }}}}]\n{LOAD}',
    "directory": f'stack = [{{{{ layer = "directory", path = "{{odd}}" }}}}]\n{LOAD}',
    "cwd": f'{DIRECTORY}\n[workload.load]\ncommand = {{{{ argv = ["true"], cwd = "{{odd}}" }}}}',
    "argv": f'{DIRECTORY}\n[workload.load]\ncommand = {{{{ argv = ["{{odd}}"] }}}}',
    "kernel": f'{LOAD}\n[nodes.vm]\nkind = "vm"\nkernel = "{{odd}}"\nmodules = "/lib"\n{DIRECTORY}',
}


@pytest.mark.parametrize("place", PLACES)
def test_a_nul_in_a_path_is_the_users_mistake_and_its_key_is_named(lab: Laboratory, place: str) -> None:
    text = PLACES[place].format(odd="/x\\u0000y")
    result = lab.storlab("plan", lab.study(text))
    assert result.status == 2, str(result)
    assert "NUL" in result.stderr
    assert place.replace("directory", "path") in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("control", ["\\n", "\\t", "\\u001b[2J", "\\u007f", "\\u202e"])
def test_other_control_characters_in_a_path_lead_to_no_traceback(lab: Laboratory, control: str) -> None:
    stack = (
        f'stack = [{{ layer = "directory", path = "/x{control}y" }}]\n[workload.load]\ncommand = {{ argv = ["true"] }}'
    )
    result = lab.storlab("plan", lab.study(stack))
    assert result.status == 2, str(result)
    assert "there is no directory" in result.stderr
