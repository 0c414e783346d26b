"""What is wrong with a template, and where."""


class TemplateError(Exception):
    def __init__(self, message: str, template: str, line: int) -> None:
        super().__init__(f"{template}:{line}: {message}")
        self.template = template
        self.line = line
