"""Settings of models: the values that they may have, and scikit-learn's get_params and set_params for them.

A model gets its checks from the type hints of its maker: `min_df: Count = 1`. The same word means the same thing in all
models; other limits are written where they belong, as `Annotated[int, Between(1, 30)]`.
"""

import inspect
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Self, cast, get_type_hints

import numpy as np

from treelabel.core.errors import TreelabelError
from treelabel.core.registry import suggestion
from treelabel.core.validation import LARGEST, Between, PowerOfTwo, Rising, validate
from treelabel.core.validation import Share as Share
from treelabel.encoders.protocol import Encoder
from treelabel.text.ngrams import LARGEST_N, MOST_FEATURES

Seed = Annotated[int, Between(0, 1 << 32)]
# A weight of errors, as scikit-learn's C.
Cost = Annotated[float, Between(1e-6, 1e6)]
# A share of documents that are held out, or of numbers that are set to 0: some are left.
PartialShare = Annotated[float, Between(0, 0.99)]
NonNegative = Annotated[float, Between(0, 1e6)]
LearningRate = Annotated[float, Between(1e-12, LARGEST)]
Seconds = Annotated[float, Between(0, 1e9)]
Folds = Annotated[int, Between(2, 100)]
Count = Annotated[int, Between(1, 1 << 31)]
Passes = Annotated[int, Between(1, 1_000_000)]
Width = Annotated[int, Between(1, 1 << 16)]
WidthOrNone = Annotated[int, Between(0, 1 << 16)]
Length = Annotated[int, Between(1, LARGEST_N)]
# The shortest and the longest n-grams.
NgramRange = Annotated[tuple[Length, Length], Rising()]
Buckets = Annotated[int, Between(1, MOST_FEATURES)]
PowerOfTwoBuckets = Annotated[int, PowerOfTwo(2, 1 << 30)]


def _parameters(maker: Any) -> Mapping[str, tuple[Any, Any]]:
    """Return the type hint and the default of each parameter of a maker."""
    return _read_parameters(maker.__init__)


@cache
def _read_parameters(function: Any) -> Mapping[str, tuple[Any, Any]]:
    hints = get_type_hints(function, include_extras=True)
    named = list(inspect.signature(function).parameters.items())[1:]
    # Callers share it.
    return MappingProxyType({name: (hints.get(name, Any), each.default) for name, each in named})


def not_fitted(message: str) -> TreelabelError:
    """Return the error that a model has not learned yet, which is scikit-learn's NotFittedError, too."""
    from sklearn.exceptions import NotFittedError

    class UnfittedModelError(TreelabelError, NotFittedError):  # type: ignore[misc]
        """A model has not learned yet."""

    return UnfittedModelError(message)


class HierarchySetting:
    """The attribute `hierarchy` of models: the setting, and once a model has learned, the hierarchy that it learned.

    `get_params`, `clone` and another `fit` see the setting alone, as scikit-learn expects it.
    """

    def __get__(self, model: Any, owner: type) -> Any:
        """Return the hierarchy; of the class, the default of the setting."""
        return None if model is None else vars(model).get("hierarchy_", vars(model).get("hierarchy"))

    def __set__(self, model: Any, hierarchy: Any) -> None:
        """Store the setting."""
        vars(model)["hierarchy"] = hierarchy


class Settings:
    """Settings are the maker's parameters, stored under their own names; nothing else is a setting.

    The maker's type hints say which values they may have. The maker itself only stores them, as
    scikit-learn's clone needs it to; `make_model`, `set_params`, `fit` and the command line check them. With these
    methods scikit-learn's clone, Pipeline, cross_val_score and GridSearchCV take a model for their own.
    """

    # The name of the model in MODELS.
    name: ClassVar[str]
    # Settings that are not saved.
    unsaved: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def check_settings(cls, settings: Mapping[str, Any], where: str = "the setting ") -> None:
        """Refuse settings from a file that are not what the maker's type hints say, or are never saved.

        Parameters
        ----------
        settings
            Values by name; unknown names are left to whoever makes the model.
        where
            The beginning of messages.
        """
        for name in settings:
            if name in cls.unsaved:
                raise TreelabelError(f"{where}{name} is never saved with a model")
        cls.check_values(settings, where)

    @classmethod
    def check_values(cls, settings: Mapping[str, Any], where: str = "the setting ") -> None:
        """Refuse values that are not what the maker's type hints say.

        Parameters
        ----------
        settings
            Values by name; unknown names are passed over.
        where
            The beginning of messages.
        """
        hints = {name: hint for name, (hint, _) in _parameters(cls).items()}
        groups = cls._groups()
        for name, value in settings.items():
            if name in hints:
                validate(value, hints[name], f"{where}{name}")
            if name in groups:
                value.check_values(value.get_params(), where)
        for group in groups.values():
            group.check_values({name: settings[name] for name in group.setting_names() if name in settings}, where)

    def require_settings(self) -> None:
        """Refuse settings that are out of range, or exclude each other."""
        self.check_values(self.get_params(deep=False))
        self._check_settings()

    # Not abstract: type hints say all that most settings need.
    def _check_settings(self) -> None:
        """Refuse settings of which a model can say more than their type hints do, such as what excludes what."""

    @classmethod
    def setting_names(cls) -> list[str]:
        """List the names of the settings, those of groups included, sorted."""
        of_groups = {name for group in cls._groups().values() for name in group.setting_names()}
        return sorted({*_parameters(cls), *of_groups})

    @classmethod
    def _groups(cls) -> dict[str, "SettingsGroup"]:
        """Return the parameters that are groups of settings, with their defaults."""
        return {name: usual for name, (_, usual) in _parameters(cls).items() if isinstance(usual, SettingsGroup)}

    @classmethod
    def make(cls, **settings: Any) -> Self:
        """Make one of settings by their names; those of a group need not be put into it."""
        for outer, group in cls._groups().items():
            inner = {name: settings.pop(name) for name in group.setting_names() if name in settings}
            if inner:
                settings[outer] = replace(settings.get(outer, group), **inner)
        return cls(**settings)

    def flat_settings(self) -> dict[str, Any]:
        """Return all settings by name, those of groups in place of the groups."""
        settings = self.get_params(deep=False)
        for outer in self._groups():
            settings |= settings.pop(outer).get_params()
        return settings

    def storable_settings(self) -> dict[str, Any]:
        """Return the settings as a folder holds them: encoders by name, models within this one by name and settings."""
        return {name: _storable(value) for name, value in self.flat_settings().items() if name not in self.unsaved}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return all settings by name; with `deep`, those of nested settings too, as "estimator__setting"."""
        params = {name: vars(self).get(name, getattr(self, name)) for name in sorted(_parameters(type(self)))}
        if deep:
            for name, nested in self._nested_settings().items():
                params |= {f"{name}__{setting}": value for setting, value in nested.get_params().items()}
        return params

    def set_params(self, **settings: Any) -> Self:
        """Change settings, "estimator__setting" for nested ones; nothing changes if one is wrong."""
        self.check_values(settings)
        owners = {name: outer for outer, group in self._groups().items() for name in group.setting_names()}
        settings = {f"{owners[name]}__{name}" if name in owners else name: settings[name] for name in settings}
        self._require_known(settings)
        for name, value in settings.items():
            outer, separator, inner = name.partition("__")
            if separator and outer in self._nested_settings():
                self._set_nested(outer, self._nested_settings()[outer].set_params(**{inner: value}))
            else:
                setattr(self, name, value)
        return self

    def _require_known(self, settings: Mapping[str, Any]) -> None:
        """Refuse names that are not settings, and values that nested settings do not take."""
        known, nested = self.setting_names(), self._nested_settings()
        for name, value in settings.items():
            outer, separator, inner = name.partition("__")
            if separator and outer in nested:
                nested[outer].check_values({inner: value}, f"the setting {outer}__")
                nested[outer]._require_known({inner: value})
            elif name not in known:
                raise TreelabelError(
                    f"{type(self).__name__} has no setting {name!r}; {suggestion(name, self.get_params())}"
                )

    def _nested_settings(self) -> dict[str, "Settings"]:
        """Return the settings that have settings themselves, such as the estimators within this one, by name."""
        return {name: value for name in _parameters(type(self)) if isinstance(value := getattr(self, name), Settings)}

    def _set_nested(self, name: str, settings: "Settings") -> None:
        """Replace nested settings by changed ones."""
        setattr(self, name, settings)

    def changed_settings(self) -> dict[str, Any]:
        """Return the settings that are not the defaults, by name."""
        parameters, params = _parameters(type(self)), self.get_params(deep=False)
        return {name: value for name, value in params.items() if value != parameters[name][1]}

    def __repr__(self) -> str:
        listed = ", ".join(f"{name}={value!r}" for name, value in self.changed_settings().items())
        return f"{type(self).__name__}({listed})"


def _storable(value: Any) -> Any:
    if isinstance(value, Settings):
        return {"model": value.name, **value.storable_settings()}
    if isinstance(value, dict):
        return {name: _storable(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_storable(each) for each in value]
    if isinstance(value, np.generic):
        return value.item()
    return value.name if isinstance(value, Encoder) else value


class SettingsGroup(Settings):
    """Settings that belong together: a frozen dataclass, whose fields are settings of the model that holds it too."""

    def set_params(self, **settings: Any) -> Self:
        """Return a group with other values."""
        self.check_values(settings)
        self._require_known(settings)
        changed: Any = replace(self, **settings)  # type: ignore[type-var]
        return cast("Self", changed)

    def __sklearn_clone__(self) -> Self:
        """Return the group itself, which nothing changes."""
        return self
