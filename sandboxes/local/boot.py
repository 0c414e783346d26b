"""Start the zygote in a bare interpreter: ``python -I -S boot.py FD MODE DEVICES``.

The packages are replaced by empty ones that only know their folder, so that nothing is imported but the few modules
of the sandbox room that the zygote needs, and nothing outside the standard library.
"""

import pathlib
import sys
import types


def _stub_packages() -> None:
    folder = pathlib.Path(__file__).resolve().parent
    room = folder.parent
    source = room.parent / "src" / "forkgym"
    root = source if source.is_dir() else room.parent
    packages = {"forkgym": root, "forkgym.sandboxes": room, "forkgym.sandboxes.local": folder}
    packages["forkgym.sandboxes.guest"] = room / "guest"
    for name, path in packages.items():
        module = types.ModuleType(name)
        module.__path__ = [str(path)]
        sys.modules[name] = module


if __name__ == "__main__":
    _stub_packages()
    from forkgym.sandboxes.local.begin import main

    main(int(sys.argv[1]), *sys.argv[2:])
