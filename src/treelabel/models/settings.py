"""Settings of models by scikit-learn's conventions, without importing it: that takes longer than most predictions."""

import inspect
from collections.abc import Mapping
from typing import Any, ClassVar, Self, get_type_hints

from treelabel.core.errors import TreelabelError
from treelabel.core.kinds import check_kind
from treelabel.core.registry import suggestion


class Settings:
    """Settings are the maker's parameters, stored under their own names; nothing else is a setting.

    With these methods scikit-learn's clone, Pipeline, cross_val_score and GridSearchCV take a model for their own.
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
        hints = get_type_hints(cls.__init__, include_extras=True)
        for name, value in settings.items():
            if name in cls.unsaved:
                raise TreelabelError(f"{where}{name} is never saved with a model")
            if name in hints:
                check_kind(value, hints[name], f"{where}{name}")

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
        """Change settings, "estimator__setting" for those of estimators within it."""
        for name, value in settings.items():
            outer, nested, inner = name.partition("__")
            if nested and outer in self._nested():
                self._set_nested(outer, self._nested()[outer].set_params(**{inner: value}))
            elif name in self.setting_names():
                setattr(self, name, value)
            else:
                known = self.get_params()
                raise TreelabelError(f"{type(self).__name__} has no setting {name!r}; {suggestion(name, known)}")
        return self

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
