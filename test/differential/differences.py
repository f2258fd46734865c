"""Where reel differs from PyTorch on purpose: a sentence each, of which the README's "Coming from PyTorch" is made, and what
tells such a difference, a Difference of differential.py, from others.

python3 differences.py prints the sentences as Markdown.
"""

DOCUMENTED = []


def documented(sentence):
    """Decorates the function that tells whether a difference is of this kind."""

    def keep(applies):
        DOCUMENTED.append((sentence, applies))
        return applies

    return keep


def explanation(difference):
    """The sentence that documents this difference, or None."""
    return next((sentence for sentence, applies in DOCUMENTED if applies(difference)), None)


if __name__ == "__main__":
    for sentence, _ in DOCUMENTED:
        print(f"- {sentence}")
