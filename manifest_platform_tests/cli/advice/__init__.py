"""Advice that works: what a message tells a person to type is typed, exactly as it was told, and the state changes.

Each Action of `manifest_platform.remedies` has at least one walk here, or `test_every_action` fails. To add one, write a test
in the module of its subject (`test_items`, `test_windows`, `test_merged`, `test_store`), or in a new module in this folder:

    @pytest.mark.walks(Action.RESOLVE)
    def test_a_failed_item(shop: Shop, terminal: Terminal) -> None:
        shop.fails("no such column")                       # the state
        terminal.run("next", code=3)                       # the message, printed by a real command line in this process
        terminal.follow(Action.RESOLVE)                    # the command, cut out of that message and typed as it stands
        assert "READY" in terminal.run("next")             # the state has changed

`follow` fails where the last message does not tell the command of the action, and a test that is marked with an action and
does not follow it fails too. `terminal.raised(error)` shows an error as a command that meets it would, for what only a race
reaches. Walks are quick: windows and runs that are shredded without Spark; where Spark must be, one prepared shop is copied.
"""
