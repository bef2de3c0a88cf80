"""Reads docker/Dockerfile as far as its tests need: stages of instructions."""

import json
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "docker" / "Dockerfile"


@dataclass(frozen=True)
class Instruction:
    name: str
    value: str

    @property
    def words(self) -> list[str]:
        """The words of an exec form.

        Raises:
            ValueError: The instruction is in shell form.
        """
        words: list[str] = json.loads(self.value.partition("CMD ")[2] or self.value)
        return words


@dataclass(frozen=True)
class Stage:
    name: str
    instructions: list[Instruction] = field(default_factory=list)

    def all(self, name: str) -> list[Instruction]:
        return [instruction for instruction in self.instructions if instruction.name == name]

    def last(self, name: str) -> Instruction:
        return self.all(name)[-1]

    @property
    def environment(self) -> dict[str, str]:
        pairs = (pair.partition("=") for each in self.all("ENV") for pair in each.value.split())
        return {name: value for name, _, value in pairs}

    @property
    def arguments(self) -> dict[str, str]:
        pairs = (each.value.partition("=") for each in self.all("ARG"))
        return {name: value for name, _, value in pairs}

    @property
    def copied(self) -> list[str]:
        """What the stage copies from the repository."""
        copies = [each.value.split() for each in self.all("COPY") if "--from=" not in each.value]
        return [source for words in copies for source in words[:-1]]


def read_stages() -> list[Stage]:
    """Returns the build's stages; what stands before the first has no name."""
    lines = [line for line in DOCKERFILE.read_text("utf-8").splitlines() if not line.startswith("#")]
    stages = [Stage("")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        name, _, value = line.strip().partition(" ")
        if name == "FROM":
            stages.append(Stage(value.split()[-1]))
        elif name:
            stages[-1].instructions.append(Instruction(name, value.strip()))
    return stages
