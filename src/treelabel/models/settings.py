"""Settings of models by scikit-learn's conventions, without importing it: that takes longer than most predictions."""

import inspect
from collections.abc import Mapping
from typing import Any, ClassVar, Self, get_type_hints

from treelabel.core.errors import TreelabelError
from treelabel.core.kinds import check_kind


class Settings:
    """What a maker's parameters are called is what they are stored as; nothing else is a setting.

    With these methods scikit-learn's clone, Pipeline, cross_val_score and GridSearchCV take a model for their own.
    """

    # Settings that are not saved.
    unsaved: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def check_settings(cls, settings: Mapping[str, Any], where: str = "the setting ") -> None:
        """Refuse settings from a file that are not what the maker's type hints say, or are never saved.

        Unknown names are left to whoever makes the model.
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
        """Give all settings by name; `deep` is for estimators within estimators, of which there are none."""
        return {name: getattr(self, name) for name in self.setting_names()}

    def set_params(self, **settings: Any) -> Self:
        """Change settings."""
        for name, value in settings.items():
            if name not in self.setting_names():
                raise TreelabelError(
                    f"{type(self).__name__} has no setting {name!r}; it has: {', '.join(self.setting_names())}"
                )
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self).__init__).parameters
        changed = {name: value for name, value in self.get_params().items() if value != defaults[name].default}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in changed.items())})"

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn asks of an estimator."""
        from sklearn.utils import InputTags, Tags, TargetTags

        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=True, multi_output=True),
            input_tags=InputTags(string=True, two_d_array=False),
        )
