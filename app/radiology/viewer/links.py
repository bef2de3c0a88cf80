"""Addresses that open a study in a viewer."""

from collections.abc import Mapping
from string import Formatter
from urllib.parse import quote

from training.common.manifest import MetadataValue


def viewer_link(
    template: str | None, metadata: Mapping[str, MetadataValue], *, prefix: str = ""
) -> str | None:
    """Return the address of an image in a viewer.

    Args:
        template: Template of the settings; None: there is no viewer.
        metadata: Metadata of the image.
        prefix: Where a proxy has put the service, for a path.

    Returns:
        The address; None without a viewer, or where the image lacks a UID that the template has.
    """
    if template is None:
        return None
    wanted = [name for _, name, _, _ in Formatter().parse(template) if name is not None]
    known = {name: metadata.get(name) for name in wanted}
    if not all(isinstance(value, str) and value for value in known.values()):
        return None
    link = template.format(**{name: quote(str(value), safe="") for name, value in known.items()})
    return f"{prefix}{link}" if link.startswith("/") else link
