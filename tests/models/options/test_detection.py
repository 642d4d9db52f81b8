import pytest

from foci.errors import ConfigError
from foci.models.options.detection import DetectorOptions, EfficientNetMapOptions, FocalLossOptions, SmallMapOptions


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(ConfigError, match="num_levels is 4, expected at most the 3 stages"):
        SmallMapOptions(num_levels=4)
    with pytest.raises(ConfigError, match="stages has 1 entries, expected 2 to 8"):
        SmallMapOptions(stages=(8,))
    with pytest.raises(ConfigError, match="model_dim is 10 with 2 heads, expected a multiple of both the heads and 4"):
        DetectorOptions(model_dim=10, num_heads=2)
    with pytest.raises(ConfigError, match="encoder_layers is -1, expected a whole number from 0"):
        DetectorOptions(encoder_layers=-1)
    with pytest.raises(ConfigError, match="gamma is -1.0, expected a number from 0"):
        FocalLossOptions(gamma=-1.0)
    with pytest.raises(ConfigError, match="attention.refine is True without auxiliary losses, expected False"):
        DetectorOptions(loss=FocalLossOptions(auxiliary=False))
    with pytest.raises(ConfigError, match="num_levels is 4, expected at most 3"):
        EfficientNetMapOptions(num_levels=4)
