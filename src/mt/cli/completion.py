"""`mt completion`."""

import click

from mt.cli.text import print_result


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print what makes the Tab key complete mt's commands, options, runs and configurations in a shell.

    \b
    bash: echo 'eval "$(mt completion bash)"' >> ~/.bashrc
    zsh:  echo 'eval "$(mt completion zsh)"' >> ~/.zshrc
    fish: mt completion fish > ~/.config/fish/completions/mt.fish
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None, "click has all three"
    print_result(kind(context.find_root().command, {}, "mt", "_MT_COMPLETE").source())
