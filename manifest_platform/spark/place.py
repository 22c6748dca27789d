"""The contract of a place where Spark computes: `spark.where` in the configuration names it.

A place is a plug-in of the entry point group `manifest_platform.places`: a subclass of Place, which declares the settings of
the part `spark` and opens sessions. A place does three things with a session:

- **open**: `open` returns the process's session, whose cluster runs tasks. It makes a session only if there is none that works.
- **renew**: `open` is called before each batch of work, so it replaces a session that has ended. What expires while a batch
  runs, such as a token, the place renews itself.
- **end**: `end` gives up whatever costs money or holds a cluster's resources. It is called when a command or a Dagster run is
  over, and by a follower after `ends_idle_after` seconds without work. The next `open` starts again. Any thread may call it,
  also twice.

A session that cannot be opened raises SparkUnavailable, which is charged to no item. The message says what to do.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, Field, ValidationInfo

from manifest_platform import plugins
from manifest_platform.carried import carried
from manifest_platform.settings import LocalPath, PluginSettings, Settings, local_path
from manifest_platform.spark.errors import SparkUnavailable
from manifest_platform.spark.properties import properties

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START_S = 120.0
"""Seconds that the workers of a cluster may take to run a first task."""
FOLDER = "manifest_platform_worker"
"""The folder into which workers unpack the archive, in the folder where their Python starts."""
PYTHON_OF_ARCHIVE = f"./{FOLDER}/bin/python"
"""The interpreter of workers that have the archive."""
LOCAL, MASTER, CONNECT = "local", "master", "connect"
"""The places that a properties file alone can name."""


def _properties_file(location: str, info: ValidationInfo) -> str:
    """Returns the absolute path of a properties file; in `spark_conf/`, the package's own if the configuration's is missing."""
    path = local_path(location, info)
    folder, own = Path(location).parent, carried(location)
    return str(own) if folder == Path("spark_conf") and not Path(path).exists() and own.exists() else path


PropertiesFile = Annotated[str, AfterValidator(_properties_file)]
"""The path of a properties file of Spark."""


class Place(Settings, ABC):
    """The settings of Spark: where it computes, and with which properties.

    A subclass sets `where: Literal["its name"]` with that default, another default of `conf`, and fields of its own.
    """

    where: str
    conf: PropertiesFile = Field(
        "spark_conf/local.conf",
        description="Spark's properties file; `spark_conf/` has one for each place to run, and is read from the package if it"
        " is not beside the configuration",
    )
    start_timeout_seconds: float = Field(
        START_S,
        gt=0,
        description="seconds that a cluster's workers may take to run a first task; Spark itself waits for ever if a cluster"
        " has no worker, or none with the memory and cores that `conf` asks for",
    )

    def session(self, more: Mapping[str, object] | None = None) -> SparkSession:
        """Returns the process's Spark session. `more`: properties besides the file's. Raises SparkUnavailable, MissingExtra."""
        settings = {**self.properties(), **(more or {})}
        if wrong := self.wrong(settings):
            raise SparkUnavailable(wrong)
        _used[:] = [self]
        return self.open(settings)

    def properties(self) -> dict[str, Any]:
        """Returns the properties of a session: those of the file, and those that other settings stand for."""
        return dict(properties(self.conf))

    def problem(self) -> str:
        """Returns what is wrong with the file and the settings together; empty if nothing is, or the file cannot be read."""
        try:
            return self.wrong(self.properties())
        except SparkUnavailable:
            return ""

    @abstractmethod
    def wrong(self, settings: Mapping[str, object]) -> str:
        """Returns a sentence if these properties do not fit the place: the key, its value, and what is allowed; or empty."""

    @abstractmethod
    def open(self, settings: Mapping[str, object]) -> SparkSession:
        """Returns the process's session with these properties, once a worker has run a task. Raises SparkUnavailable."""

    def end(self) -> None:
        """Gives up what costs money or holds resources; by default nothing. Raises nothing."""

    @property
    def ends_idle_after(self) -> float | None:
        """The seconds without work after which a follower ends the session; None to keep it warm."""
        return None

    @property
    def in_a_job(self) -> bool:
        """True if Spark computes only in jobs of a service, which Dagster starts; a session is opened only there."""
        return False

    def refused(self, key: str, value: object, allowed: str) -> str:
        """Returns the sentence for a property that does not fit the place."""
        given = f"is {value}" if value else "is missing"
        return f"spark.where: {self.where!r}: {key} {given}, by the configuration or {self.conf}; allowed: {allowed}"


class ClusterPlace(Place):
    """The settings of a place whose workers are other machines."""

    package: LocalPath | None = Field(
        None,
        description="the archive that `spark package` writes, which brings this package to the workers; null"
        " if they have it already",
    )

    def packed(self) -> str:
        """Returns the archive with the folder that workers unpack it into; empty without one. Raises SparkUnavailable."""
        if self.package and not Path(self.package).is_file():
            raise SparkUnavailable(
                f"spark.package: {self.package} does not exist: write it with `spark package {self.package}`"
            )
        return f"{self.package}#{FOLDER}" if self.package else ""


_used: list[Place] = []
"""The place of this process's session."""


def end() -> None:
    """Ends this process's session, if its place gives up anything by that. The next call of `session` opens another."""
    while _used:
        _used.pop().end()


def place_of(settings: Mapping[str, object]) -> str:
    """Returns the name of the place that properties of Spark stand for, if `spark.where` does not say it."""
    if "spark.remote" in settings:
        return CONNECT
    return LOCAL if is_local(settings) else MASTER


def is_local(settings: Mapping[str, object]) -> bool:
    """True if these properties of Spark name a master within this process."""
    return str(settings.get("spark.master", "")).startswith("local")


class _ByFile(PluginSettings):
    """Chooses a place by `where`; without it, by the properties file, as configurations did before they had the key."""

    def _validated(self, value: Any, info: ValidationInfo) -> Settings | None:
        if isinstance(value, dict) and "where" not in value and isinstance(conf := value.get("conf"), str):
            value = {"where": self._told(conf, info), **value}
        return super()._validated(value, info)

    def _told(self, conf: str, info: ValidationInfo) -> str:
        """Returns the place that a file names; the default if it cannot be read, which is reported when it is needed."""
        try:
            return place_of(properties(_properties_file(conf, info)))
        except (SparkUnavailable, ValueError):
            return self.default


AnyPlace = Annotated[Place, _ByFile(plugins.PLACES, LOCAL, "where")]
"""The settings of the place where Spark computes, chosen by `where`."""
