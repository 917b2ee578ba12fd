"""The store as its users see it: begin, save, commit, load, restore, repair.

The format is in ``layout``, the order of the steps in ``commit``, the rule that a load
reads one generation only in ``pin``. An instance is not safe for use by two threads at
once. All calls block.
"""

from __future__ import annotations

import contextlib
import os
import stat
import warnings
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from heaveto.errors import FileMissingError, FileTypeError, GenerationError
from heaveto.files import OS, Directory, Os, make_directories, replace_file
from heaveto.generations import commit
from heaveto.generations.layout import (
    CANDIDATES,
    CURRENT,
    MANIFEST,
    RECOGNIZERS,
    SCHEMA_VERSION,
    SESSION_STATE,
    Manifest,
    decode_lines,
    decode_object,
    encode_lines,
    encode_manifest,
    encode_object,
    generation_name,
    generation_number,
)
from heaveto.generations.pin import (
    Pin,
    absolute,
    close_quietly,
    io_error,
    open_pin,
    open_root,
    read_pointer,
)
from heaveto.generations.revision import UNKNOWN_REVISION, get_git_revision

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["EngineState", "EngineStateStore"]

_DEFAULT_FOLDER = "engine_state"
_FOLDER_VARIABLE = "HEAVETO_ENGINE_STATE_DIR"
_RETRIES = 20

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineState:
    """One generation whole, as a restore gets it."""

    generation: str | None
    """``gen-NNNN``; None for the flat layout."""
    manifest: dict[str, Any]
    recognizers: list[dict[str, Any]]
    discovery_candidates: list[dict[str, Any]]
    session_state: dict[str, Any] | None
    audit: dict[str, Any]
    """The one audit event of this restore (FORMATS 6)."""


class EngineStateStore:
    """A generation store, or one generation directory of it while it is written.

    Args:
        path: The root; None takes ``$HEAVETO_ENGINE_STATE_DIR``, else
            ``./engine_state``. A path that :meth:`begin_generation` returned gives an
            object whose ``save_*`` write into that pending generation.
        strict: Raise for a dangling pointer where the default warns and loads nothing.
        revision: Tells the revision to record and to compare with.
        system: The system calls.
    """

    def __init__(
        self,
        path: Path | str | None = None,
        *,
        strict: bool = False,
        revision: Callable[[], str] = get_git_revision,
        system: Os = OS,
    ) -> None:
        """Remember where the store is; nothing is read or made yet (SPEC J-50)."""
        chosen = path or os.environ.get(_FOLDER_VARIABLE) or _DEFAULT_FOLDER
        self.path = absolute(chosen)
        self._strict = strict
        self._revision = revision
        self._system = system
        self._pin: Pin | None = None
        self._release: weakref.finalize[[], EngineStateStore] | None = None
        self._attempt = commit.find_attempt(self.path)

    # --- begin and commit

    def begin_generation(self) -> tuple[int, Path]:
        """Hand out the next generation: its number and an empty directory.

        A flat store is first migrated into ``gen-0000`` (SPEC J-25). A begin in the
        same process supersedes an abandoned one.

        Returns:
            The number (0 in a fresh store, 1 after a migration, else current + 1) and
            the directory.

        Raises:
            GenerationError: ``busy`` while another live process holds the store;
                ``pointer_malformed`` or ``pointer_dangling`` with the survivors, and
                nothing touched (SPEC J-30); ``io``.
        """
        attempt = commit.begin(self.path, self._system)
        self._drop_pin()
        return attempt.number, attempt.directory.path

    def commit_generation(self, number: int, keep: int = 2) -> None:
        """Make a begun generation the current one, durably.

        Args:
            number: What :meth:`begin_generation` returned.
            keep: How many committed generations stay, the new one included.

        Raises:
            ValueError: ``keep`` is no integer of two or more; the attempt stays open.
            GenerationError: ``not_pending`` or ``state_corrupt`` before anything
                changed; ``io`` when the new generation is not current; and
                ``committed_unsynced`` when it is current, but the directory could not
                be synced afterwards (SPEC J-44). After ``io`` the attempt is over.
        """
        if type(keep) is not int or keep < 2:
            raise ValueError("keep must be an integer of at least 2")
        commit.commit(self.path, self._system, number, keep)
        self._drop_pin()

    def recover(self, generation: int | str) -> None:
        """Make an existing generation the current one, by a person's decision.

        Generations above it are moved into an ``aside-…`` directory, not deleted.

        Args:
            generation: Its number or name.

        Raises:
            GenerationError: ``not_pending`` when it is not there, ``state_corrupt`` or
                ``incompatible`` when it cannot be loaded; ``busy``; ``io``.
        """
        commit.recover(self.path, self._system, generation, _check_loadable)
        self._drop_pin()

    def reset(self) -> None:
        """Start over: move everything into an ``aside-…`` directory; delete nothing.

        Raises:
            GenerationError: ``busy`` or ``io``.
        """
        commit.reset(self.path, self._system)
        self._drop_pin()

    # --- saving

    def save_recognizers(self, recognizers: Iterable[object]) -> None:
        """Write the recognizers: mappings, or objects with ``to_json`` or ``as_dict``.

        Raises:
            GenerationError: ``immutable`` on a committed generation or a root that has
                ``current``; ``state_value``; ``io``, the prior file being kept.
        """
        self._save(RECOGNIZERS, encode_lines(recognizers, RECOGNIZERS))

    def save_discovery_candidates(self, candidates: Iterable[object]) -> None:
        """Write the discovery candidates; see :meth:`save_recognizers`."""
        self._save(CANDIDATES, encode_lines(candidates, CANDIDATES))

    def save_session_state(self, state: object) -> None:
        """Write the session state, one object; see :meth:`save_recognizers`."""
        self._save(SESSION_STATE, encode_object(state, SESSION_STATE))

    def save_manifest(
        self,
        turn_count: int,
        engine_identity: str = "",
        parent_engine_identity: str = "",
    ) -> None:
        """Write the manifest with this code's revision.

        Args:
            turn_count: Turns that the generation holds, zero or more.
            engine_identity: Left out of the file when empty.
            parent_engine_identity: The predecessor's identity; left out when empty.

        Raises:
            GenerationError: As :meth:`save_recognizers`.
        """
        identities = (engine_identity, parent_engine_identity)
        if type(turn_count) is not int or turn_count < 0:
            raise GenerationError(
                "turn_count must be an integer of zero or more", code="state_value"
            )
        if not all(isinstance(identity, str) for identity in identities):
            raise GenerationError("an identity must be text", code="state_value")
        manifest = Manifest(
            schema_version=SCHEMA_VERSION,
            turn_count=turn_count,
            written_at_revision=self._revision(),
            engine_identity=engine_identity,
            parent_engine_identity=parent_engine_identity,
        )
        self._save(MANIFEST, encode_manifest(manifest))

    def _save(self, name: str, data: bytes) -> None:
        """Write one file of a pending generation or of the flat layout."""
        with commit.writing(f"saving {name}"), self._writable() as directory:
            pending = self._attempt is not None
            mode = self._mode(directory, name)
            replace_file(directory, name, data, mode=mode, sync_directory=not pending)
        self._drop_pin()

    @contextlib.contextmanager
    def _writable(self) -> Iterator[Directory]:
        """Give the directory to write into, or refuse (SPEC J-09)."""
        attempt = self._attempt
        if attempt is not None:
            if not attempt.open:
                raise GenerationError(
                    f"{self.path.name}: this attempt is over", code="not_pending"
                )
            yield attempt.directory
            return
        make_directories(self.path, system=self._system)
        with Directory.open(self.path, system=self._system) as directory:
            self._refuse_immutable(directory)
            yield directory

    def _refuse_immutable(self, directory: Directory) -> None:
        """Refuse a root that has generations and a generation that is committed."""
        if directory.identity_of(CURRENT) is not None:
            raise GenerationError(
                "the store has generations: write between begin and commit",
                code="immutable",
            )
        number = generation_number(self.path.name)
        parent = None if number is None else open_root(self.path.parent, self._system)
        if number is None or parent is None:
            return
        try:
            committed = read_pointer(parent).number
        finally:
            close_quietly(parent)
        if committed is not None and number <= committed:
            raise GenerationError(
                f"{self.path.name} is committed and never written again",
                code="immutable",
            )

    def _mode(self, directory: Directory, name: str) -> int:
        """Return the mode of the file that this one replaces or follows (SPEC J-41)."""
        found = directory.stat(name)
        attempt = self._attempt
        if found is None and attempt is not None and attempt.base is not None:
            with contextlib.suppress(FileMissingError, FileTypeError):
                before = attempt.root.subdirectory(generation_name(attempt.base))
                with before:
                    found = before.stat(name) or before.stat(MANIFEST)
        return 0o600 if found is None else stat.S_IMODE(found.st_mode)

    # --- loading

    def exists(self) -> bool:
        """Tell whether there is a checkpoint: a committed generation or a flat one.

        False for a pointer that is dangling or malformed; never raises for either.
        """
        root = open_root(self.path, self._system)
        if root is None:
            return False
        try:
            state = read_pointer(root).state
            flat = state == "missing" and root.identity_of(MANIFEST) is not None
            return state == "ok" or flat
        except OSError as error:
            raise io_error("looking for a checkpoint", error) from error
        finally:
            close_quietly(root)

    def load_manifest(self, *, strict: bool | None = None) -> dict[str, Any] | None:
        """Load the manifest.

        Loads of different parts through one object belong together: they read the one
        generation that the first of them resolved. Loading a part again starts anew.

        Args:
            strict: Overrides the store's setting for a dangling pointer.

        Returns:
            Its members; None when there is no checkpoint.

        Raises:
            IncompatibleEngineStateError: A newer or an unreadable schema.
            GenerationError: ``pointer_malformed``, ``pointer_dangling`` (strict),
                ``state_corrupt``, ``superseded``, ``io``.
        """
        manifest = self._load(MANIFEST, _manifest_of, strict)
        if manifest is not None:
            self._compare_revision(manifest)
        return manifest

    def load_recognizers(self, *, strict: bool | None = None) -> list[dict[str, Any]]:
        """Load the recognizers; see :meth:`load_manifest`. None stored: empty."""
        return self._load(RECOGNIZERS, _lines_of(RECOGNIZERS), strict) or []

    def load_discovery_candidates(
        self, *, strict: bool | None = None
    ) -> list[dict[str, Any]]:
        """Load the discovery candidates; see :meth:`load_manifest`."""
        return self._load(CANDIDATES, _lines_of(CANDIDATES), strict) or []

    def load_session_state(
        self, *, strict: bool | None = None
    ) -> dict[str, Any] | None:
        """Load the session state; None where a generation has none."""
        return self._load(SESSION_STATE, _session_of, strict)

    def restore(
        self,
        *,
        validator: Callable[[EngineState], bool] | None = None,
        on_event: Callable[[dict[str, Any]], None] | None = None,
        fresh: bool = False,
        strict: bool | None = None,
    ) -> EngineState | None:
        """Load one generation whole and prove it.

        Args:
            validator: Gets the restored state; a false answer refuses it (SPEC J-49).
            on_event: Gets the one audit event of this restore, before the return; not
                called where nothing is restored (SPEC J-23).
            fresh: Start without reading anything (SPEC J-51).
            strict: As for :meth:`load_manifest`.

        Returns:
            The state, unchanged and unrepaired; None when there is no checkpoint.

        Raises:
            GenerationError: As :meth:`load_manifest`, and ``validator_refused``.
        """
        if fresh:
            return None
        for attempt in range(_RETRIES):
            try:
                state = self._load_whole(strict)
                break
            except GenerationError as error:
                if error.code != "superseded" or attempt == _RETRIES - 1:
                    raise
        if state is None:
            return None
        if validator is not None and not validator(state):
            raise GenerationError(
                f"{state.generation or 'flat layout'}: the validator refused it",
                code="validator_refused",
            )
        if on_event is not None:
            on_event(state.audit)
        return state

    def _load_whole(self, strict: bool | None) -> EngineState | None:
        """Read all four files through one fresh pin."""
        self._drop_pin()
        manifest = self.load_manifest(strict=strict)
        pin = self._pin
        if manifest is None or pin is None:
            return None
        number = pin.number
        recognizers = self.load_recognizers()
        candidates = self.load_discovery_candidates()
        session_state = self.load_session_state()
        self._drop_pin()
        stored, here = manifest.get("written_at_revision", ""), self._revision()
        return EngineState(
            generation=None if number is None else generation_name(number),
            manifest=manifest,
            recognizers=recognizers,
            discovery_candidates=candidates,
            session_state=session_state,
            audit={
                "type": "reboot",
                "restored_turn_count": manifest.get("turn_count", 0),
                "stored_revision": stored,
                "current_revision": here,
                "revision_matched": stored == here,
                "recognizers_count": len(recognizers),
                "candidates_count": len(candidates),
            },
        )

    def _load(
        self, part: str, take: Callable[[Pin], _T | None], strict: bool | None
    ) -> _T | None:
        """Read one part through the pin, resolving a new one where it starts anew."""
        choice = self._strict if strict is None else strict
        for attempt in range(_RETRIES):
            joined = self._pin is not None and part not in self._pin.taken
            if not joined:
                self._hold(open_pin(self.path, self._system, strict=choice))
            pin = self._pin
            if pin is None:
                return None
            try:
                pin.manifest()  # every load refuses a newer schema (SPEC J-36)
                found = take(pin)
            except GenerationError as error:
                self._drop_pin()
                if joined or error.code != "superseded" or attempt == _RETRIES - 1:
                    raise
                continue
            except OSError as error:
                self._drop_pin()
                raise io_error(f"loading {part}", error) from error
            pin.taken.add(part)
            return found
        raise AssertionError("the last attempt returns or raises")

    def _hold(self, pin: Pin | None) -> None:
        """Make a pin the one that the next loads read; its handles end with us."""
        self._drop_pin()
        self._pin = pin
        if pin is not None:
            self._release = weakref.finalize(self, pin.close)

    def _drop_pin(self) -> None:
        """Forget the generation that the last loads read."""
        self._pin = None
        if self._release is not None:
            self._release()
            self._release = None

    def _compare_revision(self, manifest: dict[str, Any]) -> None:
        """Warn when another revision wrote the state; never refuse (SPEC J-18)."""
        stored = manifest.get("written_at_revision")
        here = self._revision()
        known = isinstance(stored, str) and stored and stored != UNKNOWN_REVISION
        if known and here and here != UNKNOWN_REVISION and stored != here:
            warnings.warn(
                f"the engine state was written at revision {stored}; this is {here}",
                RuntimeWarning,
                stacklevel=3,
            )


def _check_loadable(pin: Pin) -> None:
    """Read a whole generation before a person's choice makes it current."""
    if pin.manifest() is None:
        raise GenerationError(f"{pin.label} has no manifest", code="state_corrupt")
    for take in (_lines_of(RECOGNIZERS), _lines_of(CANDIDATES), _session_of):
        take(pin)


def _manifest_of(pin: Pin) -> dict[str, Any] | None:
    """Read the manifest."""
    return pin.manifest()


def _lines_of(name: str) -> Callable[[Pin], list[dict[str, Any]] | None]:
    """Return the reader of one file of lines."""

    def take(pin: Pin) -> list[dict[str, Any]] | None:
        data = pin.read(name)
        return None if data is None else decode_lines(data, f"{pin.label}/{name}")

    return take


def _session_of(pin: Pin) -> dict[str, Any] | None:
    """Read the session state."""
    data = pin.read(SESSION_STATE)
    if not data:
        return None
    return decode_object(data, f"{pin.label}/{SESSION_STATE}")
