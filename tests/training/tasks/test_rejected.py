"""What had to be left out is named once and counted."""

import pytest

from training.common.rejections import Rejections
from training.tasks.rejected import report
from training.trainer.run_state.processes import Processes


def test_what_was_left_out_is_named_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    lines, images = Rejections(10, 1, source="a.txt"), Rejections(3, 1, source="the images", unit="image")
    whole = Rejections(5, 1, source="b.txt")
    lines.add(4, "it is not UTF-8")
    images.add(2, "it is cut off")
    images.add(3, "it is cut off")
    assert report(Processes(), lines, whole, images) == 3
    assert "Line 4: it is not UTF-8." in caplog.text
    assert "2 of 3 images of the images" in caplog.text
    assert "b.txt" not in caplog.text
