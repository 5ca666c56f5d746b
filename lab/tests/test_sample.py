from hypothesis import given
from hypothesis import strategies as st

from bentpipe_lab.records.sample import Outcome, Sample
from bentpipe_lab.records.verdict import Verdict

outcomes = st.builds(
    Outcome,
    verdict=st.sampled_from(Verdict),
    seconds=st.none() | st.floats(0, 1e4),
    bytes_received=st.integers(0, 1 << 40),
    detail=st.text(),
    curve=st.lists(st.tuples(st.floats(0, 1e4), st.integers(0, 1 << 40)), max_size=3),
)


@given(st.builds(Sample, st.text(), st.text(), st.text(), st.integers(0, 99), outcomes))
def test_a_record_reads_back_as_it_was(sample: Sample) -> None:
    line = sample.to_json()
    assert "\n" not in line
    assert Sample.from_json(line) == sample
