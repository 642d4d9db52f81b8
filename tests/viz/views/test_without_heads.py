"""The table of the answers without each head: marked where it is another one, and safe to put on a page."""

from foci.viz.heads.answers import Answer, with_answers
from foci.viz.selection import Selection
from foci.viz.trace import Trace
from foci.viz.views.without_heads import fits, page

TRACE = Trace.from_arrays([[1.0]], ["das"], ["the"])


def test_other_answers_are_marked_and_first():
    answers = {"a:0": Answer("the <b>", 0.5), "a:1": Answer("it <i>", 0.25)}
    rows = page(with_answers(TRACE, Answer("the <b>", 0.75), answers)).splitlines()[2:-1]
    assert rows[0].endswith('all heads</span></th><td dir="auto">the &lt;b&gt; (0.75)</td></tr>')
    assert rows[1] == '<tr><th scope="row">a:1</th><td dir="auto"><b>it &lt;i&gt; (0.25)</b></td></tr>'
    assert rows[2] == '<tr><th scope="row">a:0</th><td dir="auto">the &lt;b&gt; (0.5)</td></tr>'


def test_it_is_the_view_of_no_attention():
    assert page(TRACE) == ""
    assert not fits(Selection(TRACE))
