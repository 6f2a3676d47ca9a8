#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A header with its comments as Doxygen reads them: the INPUT_FILTER of Doxyfile.in.

    comments.py HEADER      writes it to the standard output, each line where it was

The headers are pages to be read as they are, so they have no marks for Doxygen. Here they get them:

    a comment above a declaration    its description
    a comment behind it              its description, too
    the first one, "frt/x.h - ..."   the file's
    ---- a heading ----              nothing, nor what stands in the body of a function
    lines that are indented          stay as they are: tables, formulas, code

A name of ours in a comment (frt_graph, FRT_OK, frt::Graph) becomes a link, so Doxygen warns of one that is declared
nowhere. Any other character that Doxygen would take for a command, a tag or a link stands for itself."""
import re
import sys

TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|R"([^()\\ ]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|[^/"\'R]+|.', re.S)
TYPE = re.compile(r"\b(namespace|struct|class|union|enum)\b|\bextern\s*$")
HEADING = re.compile(r"\s*(-{4}|={4})")
NAME = r"(?<![\w:*/.$-])(?:frt_[a-z0-9_]*[a-z0-9]|FRT_[A-Z0-9_]*[A-Z0-9]|frt::\w+(?:::\w+)*)\b(?!::|[*/-]|\.\w)"
SPECIAL = re.compile(rf'{NAME}|[\\@<>&#%$"]|--|::')


def for_doxygen(match):
    return ("#" if match[0][0] in "fF" else "\\") + match[0]


def marked(lines, opening):
    """A comment's lines, without their marks, as a comment for Doxygen of as many lines."""
    out, verbatim = [], False
    for i, line in enumerate(lines):
        # A line that is indented behind others of its own paragraph continues an item of a list.
        indented = line.startswith("  ") and (verbatim or i > 0 and (lines[i - 1].strip() in ("", "@file") or lines[i - 1].endswith(":")))
        if indented and not verbatim:
            out[-1] += " @verbatim"
        elif verbatim and line.strip() and not indented:
            out[-1] += " @endverbatim"
            verbatim = False
        verbatim = verbatim or indented
        out.append(line if verbatim or line == "@file" else SPECIAL.sub(for_doxygen, line))
    return opening + "\n".join(out).rstrip(" ") + (" @endverbatim */" if verbatim else " */")


def bare(text):
    """The lines of a comment without its marks."""
    if text.startswith("/*"):
        return [re.sub(r"^ *\* ?", "", line) if i else line.lstrip() for i, line in enumerate(text[2:-2].split("\n"))]
    return [re.sub(r"^ *// ?", "", line) for line in text.split("\n")]


class Filter:
    def __init__(self, text):
        self.text, self.out = text, []
        self.scopes = [True]   # of each open brace: are declarations in it?
        self.statement = ""    # code since the last ';', '{' or '}'
        self.line = ""         # code of this line

    def run(self):
        tokens = [match[0] for match in TOKEN.finditer(self.text)]
        i = self.begin(tokens)
        while i < len(tokens):
            token = tokens[i]
            if token.startswith(("//", "/*")):
                first = i
                if token.startswith("//"):
                    i = self.last_line(tokens, i)
                self.comment("".join(tokens[first:i + 1]))
            else:
                self.code(token)
            i += 1
        return "".join(self.out)

    def last_line(self, tokens, first):
        """The last of the lines of // that are one comment with `first`: whole lines, or behind code those that stand
        below it."""
        def column(i):
            return len("".join(tokens[:i]).rpartition("\n")[2])

        i = first
        while i + 2 < len(tokens) and not tokens[i + 1].strip() and tokens[i + 1].count("\n") == 1 and \
                tokens[i + 2].startswith("//") and (not self.line.strip() or column(i + 2) == column(first)):
            i += 2
        return i

    def begin(self, tokens):
        """The licence and the comment below it are the file's; where they end."""
        if tokens[0].startswith("//"):
            i = self.last_line(tokens, 0) + 1
            lines = bare("".join(tokens[:i]))[1:]
        else:
            i = 3
            lines = bare(tokens[2])
        self.out.append(marked(["@file", *lines], "/** "))
        return i

    def comment(self, text):
        lines, behind = bare(text), self.line.strip()
        if not self.scopes[-1] or HEADING.match("".join(lines[:2])) or \
                behind.startswith(("#if", "#el", "#endif", "#undef", "}")) or behind.endswith(("{", "(", "}")):
            self.out.append(text)
        else:
            self.out.append(marked(lines, "/**< " if behind else "/** "))

    def code(self, token):
        for character in token:
            if character == "\n":
                if self.line.lstrip().startswith("#") and not self.line.rstrip().endswith("\\"):
                    self.statement = ""
                self.line = ""
                continue
            self.line += character
            if character == "{":
                self.scopes.append(self.scopes[-1] and bool(TYPE.search(self.statement)) and "(" not in
                                   re.sub(r"\b(alignas|requires|decltype)\s*\([^()]*\)", "", self.statement))
                self.statement = ""
            elif character == "}":
                if len(self.scopes) > 1:
                    self.scopes.pop()
                self.statement = ""
            elif character == ";":
                self.statement = ""
            else:
                self.statement += character
        self.out.append(token)


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as header:
        sys.stdout.write(Filter(header.read()).run())
