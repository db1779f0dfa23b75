"""What a person does to a table with a manifest, tag or cleanup plan that was never finished: look at it and
move it away.

On a file system that offers no exclusive name for a finished file, these are written under their final names
(`store.exclusive`, DIRECT). A writer that dies there leaves one that is cut short, on which nobody builds
until a person has moved it. That may happen to those of which nobody was told; D2: never to others.
"""

from __future__ import annotations

from tiltyard.errors import CorruptFile
from tiltyard.format import names
from tiltyard.format.refs import decode_tag
from tiltyard.session import Session
from tiltyard.store import Store
from tiltyard.table.cleanup.intents import INTENTS_DIR, read_intent
from tiltyard.table.snapshot import open_snapshot
from tiltyard.table.versions import list_versions
from tiltyard.testing.simulation.history import History, Outcome


def move_away_unfinished(store: Store, history: History) -> None:
    """Remove manifests, tags and plans that cannot be read; what is wrong with that goes to the history."""
    told = {each.version for each in history.operations if each.outcome is Outcome.DONE}
    for location in list_versions(store):
        try:
            open_snapshot(store, Session(), version=location.version)
        except CorruptFile as error:
            if location.version in told:
                history.wrong.append(
                    f"D2: version {location.version} was acknowledged and is damaged: {error}"
                )
            store.delete(location.path)
    tagged = {each.name for each in history.operations if each.outcome is Outcome.DONE}
    for name in store.list_names(names.TAGS_DIR):
        tag, path = names.parse_tag_name(name), f"{names.TAGS_DIR}/{name}"
        if tag is None:
            continue
        try:
            decode_tag(store.read(path), tag, path)
        except CorruptFile as error:
            if any(told_of.startswith(f"tag {tag} ") for told_of in tagged):
                history.wrong.append(f"D2: tag {tag} was acknowledged and is damaged: {error}")
            store.delete(path)
    for name in store.list_names(INTENTS_DIR):
        path = f"{INTENTS_DIR}/{name}"
        try:
            read_intent(store, path)
        except CorruptFile:  # whoever was writing it has removed nothing yet
            store.delete(path)
