"""The topology screen and the keys for the best devices: the picture, and the effect of each key."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from textual import events
from textual.binding import Binding

from gputui.inventory.matrix_text import read
from gputui.inventory.snapshot import Snapshot
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.motion import at
from gputui.sources.simulated.printed import box_of
from gputui.tui.actions import ACTIONS
from gputui.tui.screens.topology import TopologyScreen
from gputui.tui.views.matrix import SIGNS
from gputui.tui.views.table import state_of
from gputui.tui.widgets.lines import Lines
from messages import numbers
from tui.support import OPENED, Session, session

TOPOLOGIES = Path(__file__).parents[1] / "data" / "topologies"
PAIRS = "a100_pcie_4gpu_nv12_pairs"
PIX = "titanv_8gpu_pix_phb_sys"
DGX_1 = "v100_dgx1_hybrid_cube_mesh_mlx5"


def recorded(name: str) -> Snapshot:
    """A recorded box that nobody uses."""
    return at(box_of(read((TOPOLOGIES / f"{name}.txt").read_text()), name), 0.0, OPENED)


def many(count: int, word: str = "NV18") -> Snapshot:
    """A box of this many GPUs, each linked to every other."""
    names = [f"GPU{n}" for n in range(count)]
    rows = [[name, *("X" if n == m else word for m in range(count))] for n, name in enumerate(names)]
    return at(box_of(read("\n".join(map("\t".join, [["", *names], *rows]))), "many"), 0.0, OPENED)


def picture(running: Session) -> list[str]:
    """The lines of the matrix or the tree, without trailing blanks."""
    return [text.rstrip() for text in running.app.screen.query_one("#page-body", Lines).texts]


def told(running: Session) -> list[str]:
    """The lines below the picture."""
    return [text.rstrip() for text in running.app.screen.query_one("#page-footer", Lines).texts]


def pair(running: Session) -> str:
    """The line about the pair at the cursor, wherever it is."""
    (line,) = (each for each in [*picture(running), *told(running)] if each.startswith(" GPU "))
    return line


def type_ahead(running: Session, *keys: str) -> None:
    """Press keys faster than they are answered."""
    for key in keys:
        running.app.post_message(events.Key(key, key if len(key) == 1 else None))


async def test_t_shows_the_matrix_and_any_way_out_leads_back() -> None:
    async with session(recorded(PAIRS)) as running:
        for way in ("escape", "q", "t"):
            await running.press("t")
            assert isinstance(running.app.screen, TopologyScreen)
            await running.press(way)
            assert running.app.screen is running.main


async def test_each_class_of_link_has_its_sign_and_its_word() -> None:
    async with session(recorded(PIX)) as running:
        await running.press("t")
        rows = picture(running)
        assert rows[1].split()[:8] == [str(n) for n in range(8)]
        assert rows[2].split() == ["▸", "0", "╲", "▅PIX", "▃PHB", "▃PHB", *["▁SYS"] * 4, "○", "free"]
        assert rows[9].split() == ["7", *["▁SYS"] * 4, "▃PHB", "▃PHB", "▅PIX", "╲", "○", "free"]
    assert len({sign for sign, _ in SIGNS.values()}) == len(SIGNS)


async def test_rows_and_columns_stand_in_the_order_of_the_box() -> None:
    async with session(recorded(PAIRS)) as running:
        await running.press("3", "1", "t")
        rows = picture(running)
        assert rows[1].split()[:4] == ["0", "1", "2", "3"]
        assert rows[5].split()[:5] == ["[1]", "3", "▁SYS", "▁SYS", "▇NV12"]
        assert rows[3].split()[:3] == ["▸", "[2]", "1"]


async def test_devices_are_chosen_and_ordered_here_as_on_the_main_screen() -> None:
    async with session(recorded(PAIRS)) as running:
        await running.press("t", "space", "down", "space", "3")
        assert running.selected == ["0", "1", "3"]
        await running.press("K")
        assert running.selected != ["0", "1", "3"]
        await running.press("x")
        assert running.selected == []
        await running.press("b", "b")
        assert running.selected == ["0", "1"]
        assert [row.split()[:2] for row in picture(running)[2:4]] == [["[1]", "0"], ["[2]", "1"]]


async def test_the_pair_at_the_cursor_is_told_in_words() -> None:
    async with session("dgx-1") as running:
        await running.press("t")
        assert "–" not in pair(running)
        await running.press("right", "right")
        names, link, speed, path, _ = pair(running).strip().split("  ")
        assert (names, link) == ("GPU 0 – GPU 2", "NV2")
        assert speed.startswith("about 40 GB/s") and path.startswith("NODE")
        await running.press("right", "right", "down", "left")
        assert pair(running).startswith(" GPU 1 – GPU 3  NV2")


@pytest.mark.parametrize("size", [(80, 24), (130, 40), (200, 60)])
async def test_the_pair_is_directly_below_the_matrix_where_there_is_room(size: tuple[int, int]) -> None:
    async with session("shared", size=size) as running:
        await running.press("t", "right")
        rows = picture(running)
        last = max(place for place, row in enumerate(rows) if "╲" in row)
        assert rows[last + 2] == pair(running) and "NV18" in pair(running)
        assert not any("GB/s" in row for row in told(running)), "said once"


async def test_rows_of_the_matrix_have_the_state_and_what_is_near_where_there_is_room() -> None:
    async with session("shared", size=(130, 40)) as running:
        await running.press("t")
        rows, state = picture(running), running.main.app_state
        for device, row in zip(state.box.devices, rows[2:], strict=False):
            assert state_of(state, device)[1] in row and f" {device.numa_node} " in f"{row} "
        assert "STATE" in rows[1]


async def test_rows_of_the_matrix_have_the_words_of_the_state_at_80_columns() -> None:
    async with session(at(BOXES["shared"], 0.0, OPENED), size=(80, 24)) as s:
        await s.press("t")
        rows = [line for line in picture(s) if "▇" in line or "╲" in line][:8]
        assert "STATE" in picture(s)[1] and all(len(row) <= 80 for row in picture(s))
        for row, device in zip(rows, s.main.app_state.rows, strict=True):
            assert state_of(s.main.app_state, device)[1].partition(",")[0][:10] in row and "…" not in row


async def test_the_weakest_link_of_the_selection_is_named() -> None:
    async with session(recorded(PAIRS)) as running:
        await running.press("0", "1", "t")
        assert "cuda:1 = GPU 1" in "".join(told(running)) and "weakest link NV12" in "".join(told(running))
        await running.press("2")
        assert "weakest link SYS" in "".join(told(running))


async def test_a_ring_that_avoids_the_weakest_pair_is_told() -> None:
    async with session(recorded(DGX_1)) as running:
        await running.press(*"01234567", "t")
        assert "weakest link NV2 (ring)" in "".join(told(running))


async def test_sixteen_devices_fit_into_80_columns() -> None:
    async with session("dgx-2") as running:
        await running.press("t")
        rows = picture(running)
        assert rows[1].split() == [str(n) for n in range(16)]
        assert all(len(row) <= 80 for row in rows)
        assert rows[2].split()[3:18] == ["▇6"] * 15


@pytest.mark.thorough
async def test_seventy_two_devices_scroll_and_every_one_can_be_looked_at() -> None:
    async with session(many(72), size=(80, 24)) as running:
        await running.press("t")
        head, tens, units, first, *_ = picture(running)
        assert "of 72" in head
        assert units.split()[:12] == list("012345678901") and tens.split()[:3] == ["1", "1", "1"]
        assert first.split()[1:3] == ["0", "╲"]
        await running.press("G")
        type_ahead(running, *["right"] * 80)
        await running.until(lambda: pair(running).startswith(" GPU 71  ←"), patience=300.0)
        assert picture(running)[-1].split()[:2] == ["▸", "71"]
        assert picture(running)[-1].rstrip(" ○").endswith("╲")


async def test_tab_shows_what_hangs_where() -> None:
    async with session(recorded(PIX)) as running:
        await running.press("t", "tab")
        drawn = [row.strip() for row in picture(running)[1:]]
        assert "NUMA node" in drawn[0]
        assert [row.partition("  recorded GPU")[0] for row in drawn[1:7]] == [
            "└─ host bridge",
            "├─ PCIe switch",
            "▸        │  ├─ GPU 0",
            "│  └─ GPU 1",
            "└─ PCIe switch",
            "├─ GPU 2",
        ]
        assert all(row.endswith("○ free") == ("GPU" in row) for row in drawn[1:7])


async def test_the_tree_chooses_too() -> None:
    async with session(recorded(DGX_1)) as running:
        await running.press("t", "tab", "down", "down", "space")
        assert running.selected == ["2"]
        assert any(row.startswith("▸ [1]") and "GPU 2" in row for row in picture(running))
        assert any("network mlx5_0" in row for row in picture(running))
        assert any("NVLink  NV2 0━2" in row for row in picture(running))
        await running.press("up", "up", "up", "space")
        assert running.selected == ["2", "0"]


async def test_a_click_chooses_in_both_forms() -> None:
    async with session(recorded(PIX)) as running:
        await running.press("t")
        await running.pilot.click("#page-body", offset=(8, 4))
        await running.settle()
        assert running.selected == ["2"]
        await running.press("x", "tab")
        row = next(n for n, text in enumerate(picture(running)) if "GPU 5" in text)
        await running.pilot.click("#page-body", offset=(12, row))
        await running.settle()
        assert running.selected == ["5"]


async def test_a_mig_box_has_its_instances_in_the_tree_and_not_in_the_matrix() -> None:
    async with session("a100-mig") as running:
        await running.press("t")
        assert picture(running)[2].split()[:4] == ["▸", "0", "╲", "▇NV12"]
        assert picture(running)[3].split()[:3] == ["1", "▇NV12", "╲"]
        await running.press("tab")
        assert any("GPU 0:2" in row for row in picture(running))


async def test_a_box_of_one_device_has_a_matrix_of_one_cell() -> None:
    async with session("laptop") as running:
        await running.press("t")
        assert picture(running)[2].split()[:3] == ["▸", "0", "╲"]
        await running.press("down", "right", "tab", "down")
        assert any("GPU 0" in row for row in picture(running))


async def test_a_box_without_devices_or_without_links_says_so() -> None:
    async with session(replace(recorded(PAIRS), devices=(), links=(), pcie=(), peers=())) as running:
        await running.press("t", "down", "right", "space")
        assert "no GPUs" in picture(running)[1]
        assert "select" not in told(running)[-1], "no key of a device"
    async with session(replace(recorded(PAIRS), links=(), pcie=(), peers=(), topology=None)) as running:
        await running.press("t", "down", "right", "space")
        assert "links" in picture(running)[1] and len(picture(running)) == 2
        await running.press("tab", "down")
        assert "links" in picture(running)[1] and len(picture(running)) == 2


async def test_b_takes_one_more_of_the_best_and_says_why() -> None:
    async with session(recorded(PAIRS)) as running:
        await running.press("b")
        assert running.selected == ["0"]
        await running.press("b")
        assert running.selected == ["0", "1"]
        message = running.main.message
        assert message.startswith("GPUs 0 and 1: ") and message.endswith("; another set: :next set")
        assert any("weakest link NV12" in text for text in running.texts("#selection"))


async def test_capital_b_walks_through_the_other_sets_and_comes_back() -> None:
    async with session(recorded(PAIRS)) as running:
        await running.press("b", "b", "@other")
        assert running.selected == ["2", "3"]
        assert running.main.message.startswith("GPUs 2 and 3 (not 0 and 1): ")
        await running.press("@other", "@other")
        assert running.selected == ["0", "1"]


async def test_what_was_chosen_by_hand_stays_and_stays_first() -> None:
    async with session(recorded(PAIRS)) as running:
        await running.press("3", "b")
        assert running.selected == ["3", "2"]
        await running.press("b")
        assert running.selected[0] == "3" and len(running.selected) == 3


async def test_n_takes_as_many_as_asked_for_their_job() -> None:
    async with session(recorded(DGX_1)) as running:
        await running.press("@ask", *"4", "enter")
        assert running.selected == ["0", "1", "2", "3"]
        await running.press("@ask", *"4", "space", "t", "p", "equals_sign", "2", "enter")
        assert running.selected == ["0", "2", "1", "3"]
        await running.press("@ask", "escape")
        assert running.selected == ["0", "2", "1", "3"]


@pytest.mark.parametrize("typed", ["0", "tp=3 x", "5 tp=2", "-1"])
async def test_what_cannot_be_meant_is_said_and_takes_nothing(typed: str) -> None:
    async with session(recorded(PAIRS)) as running:
        await running.press("@ask", *("space" if c == " " else "minus" if c == "-" else c for c in typed))
        await running.press("enter")
        assert running.app.screen is not running.main
        await running.press("escape")
        assert running.selected == []


async def test_keys_typed_behind_enter_do_not_join_what_was_typed() -> None:
    async with session("dgx-2") as running:
        await running.press("@ask")
        type_ahead(running, "4", "enter", "t")
        await running.until(lambda: running.selected)
        assert running.selected == ["4", "5", "6", "7"]


async def test_more_than_there_are_is_said() -> None:
    async with session(recorded(PAIRS)) as running:
        await running.press("@ask", "9", "enter")
        assert running.selected == []
        assert set(numbers(running.main.message)) == {9, 4}


async def ordered(running: Session, order: str) -> None:
    await running.press("colon", *f"order {order}", "enter")


async def test_each_order_is_chosen_by_its_name() -> None:
    async with session(recorded(DGX_1)) as running:
        await running.press(*"76543210")
        await ordered(running, "best")
        assert running.selected == ["0", "2", "3", "1", "6", "4", "5", "7"]
        best = running.main.message
        assert best.startswith("order: ") and "links" in best
        await ordered(running, "by index")
        assert running.selected == [str(n) for n in range(8)]
        assert running.main.message.startswith("order: ") and "index" in running.main.message
        await running.press("@clear")
        await ordered(running, "best")
        assert "an order needs two" in running.main.message


async def test_the_fastest_of_unlike_devices_comes_first() -> None:
    async with session("mixed") as running:
        await running.press("0", "1")
        await ordered(running, "fastest")
        assert (running.selected, running.main.message) == (["1", "0"], "order: fastest first")
        await running.press("t", "o")
        rows = running.app.screen.query_one("#page-body", Lines).texts
        assert any("order fastest first" in row and row.rstrip().endswith("now") for row in rows)


async def test_the_groups_of_a_job_have_a_weakest_link_of_their_own() -> None:
    async with session(recorded(DGX_1)) as running:
        await running.press("@ask", "4", "space", "t", "p", "equals_sign", "2", "enter")
        assert "tp=2: weakest link NV2" in running.texts("#selection")[1]
        await ordered(running, "by index")
        assert "tp=2: weakest link NV1" in running.texts("#selection")[1]


async def test_b_says_where_there_is_no_other_set() -> None:
    async with session("idle") as running:
        await running.press("b", "b")
        before = running.selected
        await running.press("@other")
        assert running.selected == before
        assert running.main.message == "there is no other free set of 2"
    async with session(many(4)) as running:
        await running.press("b", "b", "@other")
        assert running.main.message == "every other free set of 2 is as good as this one"


async def test_beside_a_mig_instance_there_is_no_best() -> None:
    async with session("a100-mig") as running:
        await running.press("down", "down", "space", "b")
        assert len(running.selected) == 1
        assert "MIG instance" in running.main.message


async def test_the_matrix_of_a_mig_box_takes_the_gpu_for_its_instance() -> None:
    async with session("a100-mig") as running:
        await running.press("down", "t")
        assert picture(running)[2].startswith("▸")
        await running.press("space")
        assert running.selected == []
        assert "GPU 0" in told(running)[-2] and "MIG instances" in told(running)[-2]


async def test_a_shortage_counts_what_is_ours() -> None:
    async with session("dgx-h100", environ={"CUDA_VISIBLE_DEVICES": "0,1"}) as running:
        await running.press("@ask", "3", "enter")
        assert set(numbers(running.main.message)) == {3, 2}


@pytest.mark.thorough
async def test_the_tree_scrolls_on_below_the_last_device() -> None:
    async with session(recorded("a100_dgx_nv12_mlx5_12")) as running:
        await running.press("t", "tab", "G")
        assert not any("NVLink" in row for row in picture(running))
        await running.press(*["down"] * 3)
        shown, screen = picture(running), running.app.screen
        assert isinstance(screen, TopologyScreen)
        for _ in range(3):
            screen.draw()
        assert picture(running) == shown, "only keys scroll"
        await running.press(*["down"] * 12)
        assert any("NVLink" in row for row in picture(running))
        await running.press("up")
        assert any("NUMA node 5" in row for row in picture(running)), "one key up and it is seen"
        await running.press("g")
        assert "NUMA node 3" in picture(running)[1]


async def test_keys_of_the_main_screen_work_in_the_topology() -> None:
    async with session(recorded(PAIRS)) as running:
        await running.press("t", "1", "y")
        await running.until(lambda: running.main.message)
        await running.press("@cpu")
        assert running.main.app_state.selection.cpu_only
        await running.press("question_mark", "escape", "escape")
        assert running.app.screen is running.main


async def test_a_permuted_order_behind_nvswitches_is_warned_of_and_o_mends_it() -> None:
    for command in (), ("python", "train.py"):
        async with session("shared", command=command, size=(80, 50)) as running:
            await running.press("5", "4")
            assert "1906" not in " ".join(running.texts("#launch")), "one process has nothing to mix up"
    async with session("shared", command=("torchrun", "train.py"), size=(80, 50)) as running:
        await running.press("5", "4")
        (told,) = (text for text in running.texts("#launch") if "1906" in text)
        assert ":order by index" in told and len(told) <= 78 and "…" not in told
        await ordered(running, "by index")
        assert running.selected == ["4", "5"]
        assert "1906" not in " ".join(running.texts("#launch"))


async def test_wide_terminals_have_the_links_beside_the_table() -> None:
    async with session("dgx-1", size=(160, 40)) as running:
        await running.until(lambda: any("─ links ─" in row for row in running.texts("#lists")))
        rows = running.texts("#lists")
        rule = next(place for place, row in enumerate(rows) if "─ links ─" in row)
        heading, first = rows[rule + 1 : rule + 3]
        assert heading.split() == [str(n) for n in range(8)]
        assert first.split()[:4] == ["▸", "0", "╲", "▇1"]
    async with session("dgx-2", size=(130, 40)) as running:
        await running.until(lambda: "NV6 between all 16 GPUs" in running.texts("#selection")[0])
        assert not any("╲" in row for row in running.texts("#lists"))


@pytest.mark.parametrize("size", [(40, 10), (30, 8), (40, 6), (20, 3)])
async def test_a_small_page_has_a_row_of_the_matrix_or_says_that_it_is_too_small(
    size: tuple[int, int],
) -> None:
    async with session("dgx-1", size=size) as running:
        await running.press("t")
        page = running.app.screen
        assert isinstance(page, TopologyScreen)
        shown = page.body.texts[: page.body.size.height]
        assert any(row.startswith("▸") for row in shown) or "too small" in shown[0]
        assert size[1] < 8 or not any("too small" in row for row in shown)


def test_the_actions_of_the_topology_screen_are_the_main_screens() -> None:
    ids = {action.id for action in ACTIONS if not action.page}
    of_main = {
        binding.action.split("'")[1]
        for binding in TopologyScreen.BINDINGS
        if isinstance(binding, Binding) and binding.action.startswith("perform(")
    }
    assert of_main < TopologyScreen.HERE < ids


async def test_below_the_matrix_stands_what_is_near_to_which_gpu_where_there_is_room() -> None:
    async with session(recorded(DGX_1), size=(100, 40)) as s:
        await s.press("t")
        text = "\n".join(picture(s))
        assert "▁SYS on different CPU sockets" in text and "▇NV2 2 NVLinks" in text
        assert "network mlx5_0" in text and text.count("GPU 5") == 1, "the whole tree"
    async with session(recorded(DGX_1), size=(100, 24)) as s:
        await s.press("t")
        text = " ".join(line.strip() for line in picture(s))
        assert "NUMA 0: GPU 0–3, NUMA 1: GPU 4–7" in text
        assert "mlx5_0: PIX GPU 2,3; mlx5_1: PIX GPU 6,7" in text
        assert not any("SYS on different" in line for line in told(s)), "said once"
    async with session(recorded(DGX_1), size=(100, 17)) as s:
        await s.press("t")
        assert not any("mlx5" in line for line in picture(s))
        said = [line for line in (*picture(s), *told(s)) if "2 NVLinks" in line]
        assert len(said) == 1, "the signs are explained at any size"
    async with session(recorded(DGX_1), size=(60, 15)) as s:
        await s.press("t")
        before = picture(s), told(s)
        s.app.screen.draw()  # type: ignore[attr-defined]
        await s.settle()
        assert (picture(s), told(s)) == before, "nothing moves after the first frame"
        assert sum("2 NVLinks" in line for line in told(s)) == 1


async def test_the_palette_has_each_entry_once_and_finds_it_by_the_words_of_both_screens() -> None:
    async with session() as s:
        await s.press("t", "colon")

        def listed() -> list[str]:
            lines = [text.strip(" ▸") for text in s.app.screen.query_one("#page-body", Lines).texts]
            return [line for line in lines if line and not line.startswith(("─", ":  type"))]

        assert sum("Type how many GPUs" in line for line in listed()) == 1
        assert not any("on this page" in line for line in listed())
        await s.press(*"number")
        assert listed()[1].startswith("n ") and "Type how many GPUs" in listed()[1]
        assert sum("Type how many GPUs" in line for line in listed()) == 1
        await s.press("enter")
        await s.press("2", "enter")
        assert len(s.main.app_state.selection) == 2 and isinstance(s.app.screen, TopologyScreen)
