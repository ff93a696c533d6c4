"""Settings of models by scikit-learn's conventions, without importing it: that takes longer than most predictions."""

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, ClassVar, Self, get_type_hints

from treelabel.core.errors import TreelabelError
from treelabel.core.registry import suggestion
from treelabel.core.validation import check_kind


@cache
def _hints(maker: Callable[..., None]) -> dict[str, Any]:
    """Return the type hints of a maker's parameters."""
    return get_type_hints(maker, include_extras=True)


def not_fitted(message: str) -> TreelabelError:
    """Return the error that a model has not learned yet, which is scikit-learn's NotFittedError, too."""
    from sklearn.exceptions import NotFittedError

    class UnfittedModelError(TreelabelError, NotFittedError):  # type: ignore[misc]
        """A model has not learned yet."""

    return UnfittedModelError(message)


class Settings:
    """Settings are the maker's parameters, stored under their own names; nothing else is a setting.

    The maker's type hints say which values they may have (see `ranges`). The maker itself only stores them, as
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

        Unknown names are left to whoever makes the model.

        Parameters
        ----------
        settings
            Values by name.
        where
            The beginning of messages.
        """
        for name in settings:
            if name in cls.unsaved:
                raise TreelabelError(f"{where}{name} is never saved with a model")
        cls.check_values(settings, where)

    @classmethod
    def check_values(cls, settings: Mapping[str, Any], where: str = "the setting ") -> None:
        """Refuse values that are not what the maker's type hints say; unknown names are passed over.

        Parameters
        ----------
        settings
            Values by name.
        where
            The beginning of messages.
        """
        hints = _hints(cls.__init__)
        for name, value in settings.items():
            if name in hints:
                check_kind(value, hints[name], f"{where}{name}")

    def require_settings(self) -> None:
        """Refuse settings that are out of range, or exclude each other."""
        self.check_values(self.get_params(deep=False))
        self._check_settings()

    # Not abstract: type hints say all that most settings need.
    def _check_settings(self) -> None:
        """Refuse settings of which a model can say more than their type hints do, such as what excludes what."""

    @classmethod
    def setting_names(cls) -> list[str]:
        """List the names of the settings, sorted."""
        return sorted(name for name in inspect.signature(cls.__init__).parameters if name != "self")

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return all settings by name; with `deep`, those of estimators within it too, as "estimator__setting"."""
        found = {name: getattr(self, name) for name in self.setting_names()}
        if deep:
            for name, part in self._nested().items():
                found |= {f"{name}__{setting}": value for setting, value in part.get_params().items()}
        return found

    def set_params(self, **settings: Any) -> Self:
        """Change settings, "estimator__setting" for those of estimators within it; nothing changes if one is wrong."""
        self.check_values(settings)
        self._require_known(settings)
        for name, value in settings.items():
            outer, nested, inner = name.partition("__")
            if nested and outer in self._nested():
                self._set_nested(outer, self._nested()[outer].set_params(**{inner: value}))
            else:
                setattr(self, name, value)
        return self

    def _require_known(self, settings: Mapping[str, Any]) -> None:
        """Refuse names that are not settings, and values that estimators within this one do not take."""
        own, nested = self.setting_names(), self._nested()
        for name, value in settings.items():
            outer, found, inner = name.partition("__")
            if found and outer in nested:
                nested[outer].check_values({inner: value}, f"the setting {outer}__")
                nested[outer]._require_known({inner: value})
            elif name not in own:
                raise TreelabelError(
                    f"{type(self).__name__} has no setting {name!r}; {suggestion(name, self.get_params())}"
                )

    def _nested(self) -> dict[str, "Settings"]:
        """Return the estimators within this one by name."""
        return {}

    def _set_nested(self, name: str, estimator: "Settings") -> None:
        """Replace an estimator within this one."""
        raise NotImplementedError

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self).__init__).parameters
        given = self.get_params(deep=False)
        changed = {name: value for name, value in given.items() if value != defaults[name].default}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in changed.items())})"

    def _repr_html_(self) -> str:
        """Return what notebooks show."""
        from html import escape

        rows = "".join(
            f"<tr><td>{escape(name)}</td><td>{escape(repr(value))}</td></tr>"
            for name, value in self.get_params(deep=False).items()
        )
        state = "fitted" if hasattr(self, "hierarchy_") else "not fitted"
        title = f"<summary><b>{escape(type(self).__name__)}</b> ({state})</summary>"
        return f"<details>{title}<table>{rows}</table></details>"

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn asks of an estimator."""
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=True, multi_output=True),
            classifier_tags=ClassifierTags(multi_label=True),
            input_tags=InputTags(string=True, two_d_array=False),
        )

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether the model has learned."""
        return hasattr(self, "hierarchy_")
