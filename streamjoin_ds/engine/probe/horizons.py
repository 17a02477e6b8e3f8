"""The rows of tuples that are decided at their horizon: once, when all partners that they can ever have are known.

::

    new tuples ──► waiting ──► horizon ──► probe ──► reduction ──► result rows
                   (storage)   passed      windows    partners     nulls for the stream that lacks

A reduction says what becomes of a tuple's partners (`Reduction`): whether there is any (`HasPartner`), or sums over
them (`aggregates`). What is known of a waiting tuple's partners is not kept: they are found when it is decided. Only a
tuple that is in a pair of the very push that brings it does not begin to wait, where no row of it alone can follow.
Where other cells have such tuples too, these wait as well: what waits is then the same in all of them, and so are its
blocks, which they share. The rows of such tuples hold what whoever puts the cells' rows together needs: in place of
aggregates what they are made of (`Aggregation.partials`), with a nearest partner how near it is (`NEARNESS`), with
several streams those that have a partner (`MET`).

*Each stream by itself.* Tuples of the first stream may be asked for partners in each of several others (`EachStream`)::

    decided tuples ──► window of w ──► those still open ──► window of z ──► rows of "semi", or of "anti"
                       has a partner?                       has a partner?

A tuple of "semi" needs a partner in each, so the first stream without one decides it. A tuple of "anti" may have none,
so the first stream with one decides it. Only tuples that are still open meet the next window.

Where other cells have partners of the same tuples, none is decided before all windows were met: the row of a tuple of
"semi" says in which streams it has partners (`MET`), and whoever puts the cells' rows together wants all of them.

A null keeps a tuple from having partners only in the streams that its column is compared with. Tuples with such gaps
are probed as they lie, without being sorted.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from streamjoin_ds.engine.columns import NullKeyMask, filtered, one_batch
from streamjoin_ds.engine.kernels.objects import Int32, Int64
from streamjoin_ds.engine.probe.aggregates import Aggregation, aggregates_of_none, partials_of_none
from streamjoin_ds.engine.probe.join_order import JoinOrder
from streamjoin_ds.engine.probe.nearest import NearestRows, with_nearness
from streamjoin_ds.engine.probe.pipeline import Inside, JoinPipeline
from streamjoin_ds.engine.probe.probe_batch import ProbeBatch
from streamjoin_ds.engine.probe.results import inside_columns
from streamjoin_ds.engine.probe.window_probe import ProbeCursor
from streamjoin_ds.engine.scheduler import ChunkCoroutine, TaskCoroutine
from streamjoin_ds.engine.storage.sealed_run import KeptLayout, SealedRun
from streamjoin_ds.engine.storage.selection import Selection
from streamjoin_ds.engine.storage.waiting import StreamWaiting, Waiting
from streamjoin_ds.engine.storage.window import Window, WindowForm
from streamjoin_ds.engine.tuning import DEFAULT, Tuning
from streamjoin_ds.spec.bound.bound_join import BoundJoin
from streamjoin_ds.spec.columns import SEQ, TS, Mask
from streamjoin_ds.spec.expression.predicate import Column

__all__ = ["MET", "DecidingPush", "EachStream", "HasPartner", "Horizons", "NewPartners"]

MET = "met"
"""The last column of a row that is not whole: bit *n* - 1 says that the tuple has a partner in stream *n*."""

_NONE: Mapping[str, pa.Array] = {}
_PIECES_BY_PAIRS = 16


class HasPartner:
    """The reduction that tells which of some tuples have a partner: `mask`, one bool for each."""

    def __init__(self, count: int) -> None:
        self.mask: Mask = np.zeros(count, np.bool_)

    def add(self, positions: Int32, found: Selection) -> None:
        """Take some pairs; see `Reduction`."""
        del found
        self.mask[positions] = True

    def inside(self, probing: ProbeCursor) -> Inside:
        """Return what counts the partners of each tuple; see `JoinPipeline.reducing`."""
        counts = np.zeros(len(self.mask), np.int64)
        return Inside(probing.counting(counts), partial(self._take, counts))

    def _take(self, counts: Int64) -> None:
        self.mask |= counts > 0


class NewPartners:
    """Tells which new tuples of a push are in a pair of the same push.

    Parameters
    ----------
    numbers : ndarray, shape (n,), int64
        The new tuples' numbers.
    column : str
        The column of result rows that holds them.

    Attributes
    ----------
    mask : ndarray, shape (n,), bool
    """

    def __init__(self, numbers: Int64, column: str) -> None:
        self._numbers, self._column = numbers, column
        self.mask: Mask = np.zeros(len(numbers), np.bool_)
        self._lowest = int(numbers.min())
        span = int(numbers.max()) - self._lowest + 1
        # Numbers of one stream mostly follow each other: then a table of them is quicker than a search.
        self._flags = np.zeros(span, np.bool_) if span <= 8 * len(numbers) + 1024 else None

    def add(self, rows: pa.Table) -> None:
        """Take some pairs as result rows."""
        found = rows.column(self._column).to_numpy()
        if self._flags is None:
            self.mask |= np.isin(self._numbers, found)
            return
        places = found - self._lowest
        self._flags[places[(places >= 0) & (places < len(self._flags))]] = True

    def alone(self) -> Mask:
        """Return which of the new tuples are in no pair so far."""
        if self._flags is not None:
            self.mask = self._flags[self._numbers - self._lowest]
        return ~self.mask


class EachStream:
    """The decision, for a "semi" or "anti" join of three streams and more.

    Parameters
    ----------
    bound : BoundJoin
    form : WindowForm
        Of the first stream.
    joining : JoinPipeline
    order : JoinOrder
        The order in which the others are asked.
    """

    def __init__(self, bound: BoundJoin, form: WindowForm, joining: JoinPipeline, order: JoinOrder) -> None:
        self._form, self._joining, self._order = form, joining, order
        self.wants_partner = not bound.row_kind.lonely
        # Tuples of a semi join that have a gap never come here.
        self._met = {} if self.wants_partner else {n: NullKeyMask(bound, 0, n) for n in range(1, len(bound.names))}

    def have_gaps(self, tuples: pa.RecordBatch) -> bool:
        """Return whether some of the tuples cannot have partners in each of the others."""
        columns = self._form.tuple_columns(tuples)
        return any(mask.mask(columns) is not None for mask in self._met.values())

    def arrived(self, run: SealedRun, windows: Sequence[Window]) -> ProbeBatch:
        """Return the tuples of a run, to meet the windows of the others in order."""
        selection = Selection.whole(run)
        return ProbeBatch(0, selection, self._order.chosen(0, windows, selection), tuple(windows))

    def mask(self, arrived: ProbeBatch) -> TaskCoroutine[Mask]:
        """Return which of the tuples make a row, step by step."""
        selection = arrived.selection
        count = len(selection)
        tuples = selection.run_set.runs[0].tuples.slice(selection.begin, count)
        columns = self._form.tuple_columns(tuples.select(self._form.tuple_schema.names))
        is_open: Mask = np.ones(count, np.bool_)
        for other in arrived.order:
            met = self._met[other].mask(columns) if other in self._met else None
            tried = np.flatnonzero(is_open if met is None else is_open & met).astype(np.int32)
            chosen = selection if len(tried) == count else selection.take(tried)
            reduction = HasPartner(len(tried))
            if len(tried):
                part = ProbeBatch(0, chosen, (other,), arrived.windows)
                yield from self._joining.reducing(part, reduction, reduction.inside)
            if self.wants_partner:
                is_open[tried] = reduction.mask
            else:
                is_open[tried[reduction.mask]] = False
        return is_open

    def met(self, arrived: ProbeBatch) -> TaskCoroutine[Int64]:
        """Return in which streams each of the tuples of a semi join has partners, as `MET`, step by step."""
        found: Int64 = np.zeros(len(arrived.selection), np.int64)
        for other in arrived.order:
            reduction = HasPartner(len(found))
            part = ProbeBatch(0, arrived.selection, (other,), arrived.windows)
            yield from self._joining.reducing(part, reduction, reduction.inside)
            found |= reduction.mask.astype(np.int64) << (other - 1)
        return found


class Horizons:
    """The decided streams of a join: which tuples wait, and the rows of those whose horizon has passed.

    Parameters
    ----------
    bound : BoundJoin
    forms : sequence of WindowForm
    joining : JoinPipeline
    order : JoinOrder
    tuning : Tuning
    copied : collection of int
        The streams whose tuples other cells have too.

    Attributes
    ----------
    streams : tuple of int
        The decided streams, and the one whose tuples are decided in the push that brings them.
    at_once : bool
        Whether it is the latter: nothing waits then.
    has_pairs : bool
        Whether new tuples are joined as they come.
    probed_windows : list of int
        The streams whose windows are probed.
    """

    def __init__(
        self,
        bound: BoundJoin,
        forms: Sequence[WindowForm],
        joining: JoinPipeline,
        order: JoinOrder,
        tuning: Tuning = DEFAULT,
        copied: Collection[int] = (),
    ) -> None:
        self._bound, self._forms, self._joining, self._tuning = bound, forms, joining, tuning.waiting
        self._copied = frozenset(copied)
        # The partners of a tuple are all known when it comes where they are rows of a table.
        self.at_once = bound.row_kind.at_once
        self.streams = (0,) if self.at_once else bound.decided
        # A semi join's row says that there is a partner, any other row of one tuple that there is none.
        self._lonely = bound.row_kind.lonely
        self.has_pairs = bound.row_kind.has_pairs
        # Nobody probes the windows of the others, so they need not be kept.
        self.probed_windows = [n for n in range(len(forms)) if self.has_pairs or n not in self.streams]
        self._rows = {stream: _RowsOfOne(bound, stream) for stream in self.streams}
        self._summed_rows = self._tuning.held_rows if bound.holds_values else self._tuning.summed_rows
        self._by_pairs = 0  # how many pieces of tuples are still summed up pair by pair
        self._layouts: dict[int, KeptLayout] = {}
        self._layout_uses = tuning.grid.layout_uses
        self._nearest = NearestRows(bound, joining, tuning.nearest) if bound.distance is not None else None
        self._each = EachStream(bound, forms[0], joining, order) if bound.row_kind.of_each else None

    def none_waiting(self) -> tuple[StreamWaiting, ...]:
        """Return what waits before the first push."""
        return () if self.at_once else tuple(StreamWaiting(stream, Waiting(), Waiting()) for stream in self.streams)

    def kept_rows(self, waiting: Sequence[StreamWaiting]) -> int:
        """Return how many waiting tuples are in no window and might be met by none but those that they meet."""
        return sum(of_stream.probing.rows for of_stream in waiting if of_stream.stream not in self.probed_windows)

    def new_partners(self, ready: Mapping[int, pa.RecordBatch]) -> dict[int, NewPartners]:
        """Return what notes the pairs of a push's new tuples, for each decided stream that may be in pairs."""
        if not self.has_pairs:
            return {}
        return {
            stream: NewPartners(ready[stream].column(SEQ).to_numpy(), f"{self._bound.names[stream]}_seq")
            for stream in self.streams
            if stream in ready and stream not in self._copied
        }

    def joined_by(
        self,
        waiting: Sequence[StreamWaiting],
        ready: Mapping[int, pa.RecordBatch],
        alone: Mapping[int, pa.RecordBatch],
        partners: Mapping[int, NewPartners],
    ) -> tuple[StreamWaiting, ...]:
        """Return what waits when the new tuples of a push have come.

        Parameters
        ----------
        waiting : sequence of StreamWaiting
        ready, alone : mapping of stream number to record batch
            The new tuples that may have partners, and those that cannot.
        partners : mapping of stream number to NewPartners
            As `new_partners` returned, with all pairs of the push.
        """
        made = []
        for of_stream in waiting:
            stream, probing, lonely = of_stream.stream, of_stream.probing, of_stream.alone
            if stream in ready:
                new = ready[stream]
                new = filtered(new, partners[stream].alone()) if stream in partners else new
                probing = probing.joined_by(new, self._tuning)
            if stream in alone and stream in self._lonely:
                lonely = lonely.joined_by(alone[stream], self._tuning)
            made.append(StreamWaiting(stream, probing, lonely))
        return tuple(made)

    def passed(
        self, waiting: Sequence[StreamWaiting], windows: Sequence[Window], watermark_us: int | None
    ) -> tuple[tuple[StreamWaiting, ...], Iterator[pa.Table]]:
        """Return what goes on waiting at a watermark, and the rows of the tuples whose horizon it has passed.

        Parameters
        ----------
        waiting : sequence of StreamWaiting
        windows : sequence of Window
            The windows of all streams. They hold every tuple that one of these can meet.
        watermark_us : int or None
            None: not known, so no horizon has passed.
        """
        left, due = [], []
        for of_stream in waiting:
            horizon_us = self._bound.horizon(of_stream.stream, watermark_us)
            if horizon_us is None:
                left.append(of_stream)
                continue
            probing, still_probing = of_stream.probing.passed(int(horizon_us))
            lonely, still_lonely = of_stream.alone.passed(int(horizon_us))
            left.append(replace(of_stream, probing=still_probing, alone=still_lonely))
            due.append((of_stream.stream, probing, lonely))
        return tuple(left), self._decided(due, windows)

    def decided_at_once(
        self,
        ready: Mapping[int, pa.RecordBatch],
        alone: Mapping[int, pa.RecordBatch],
        partners: Mapping[int, NewPartners],
        windows: Sequence[Window],
    ) -> Iterator[pa.Table]:
        """Return the rows of new tuples whose partners are rows of a table; arguments as of `joined_by`."""
        due = []
        for stream in self.streams:
            probing = [ready[stream]] if stream in ready else []
            lonely = [alone[stream]] if stream in alone and stream in self._lonely else []
            if self.has_pairs:  # all its pairs were made in this push
                probing, lonely = [], [*(filtered(one, partners[stream].alone()) for one in probing), *lonely]
            due.append((stream, probing, lonely))
        return self._decided(due, windows)

    def _decided(
        self, due: Sequence[tuple[int, list[pa.RecordBatch], list[pa.RecordBatch]]], windows: Sequence[Window]
    ) -> Iterator[pa.Table]:
        for stream, probing, lonely in due:
            form = self._forms[stream]
            if probing:
                arrived = self._arrived(stream, one_batch(probing, form.tuple_schema), windows)
                decided, most = self._piece, len(arrived.selection)
                if self._nearest is not None:
                    decided = self._nearest_piece
                elif self._bound.aggregates:
                    decided, most = self._summed_piece, self._summed_rows
                pieces = [decided(part) for part in self._joining.shares(arrived, most)]
                yield from self._joining.reduced(pieces)
            of_none = partials_of_none if stream in self._copied else aggregates_of_none
            for batch in lonely:
                made = of_none(self._bound, batch.num_rows, self._forms[stream].kernels.module)
                yield from self._joining.cut(self._lonely_rows(stream, batch, made))

    def _arrived(self, stream: int, tuples: pa.RecordBatch, windows: Sequence[Window]) -> ProbeBatch:
        """Return decided tuples that are to meet the windows of the others."""
        form = self._forms[stream]
        if self._each is not None and self._each.have_gaps(tuples):
            return self._each.arrived(form.arrived_with_gaps(tuples), windows)
        # As with new tuples, it does not pay to sort a few.
        run = self._sorted(stream, tuples) if tuples.num_rows > form.tailed_rows else form.arrived(tuples)
        if self._each is not None:
            return self._each.arrived(run, windows)
        return ProbeBatch(stream, Selection.whole(run), (1 - stream,), tuple(windows))

    def _sorted(self, stream: int, tuples: pa.RecordBatch) -> SealedRun:
        """Return a run of decided tuples, in the layout of those before them where these were about as many.

        A layout decides the order of the rows alone.
        """
        kept = self._layouts.get(stream)
        is_served = kept is not None and kept.serves(tuples.num_rows, self._layout_uses)
        run = self._forms[stream].sealed(tuples, kept.layout if kept is not None and is_served else None)
        self._layouts[stream] = KeptLayout.after(kept, run, self._layout_uses)
        return run

    def _piece(self, arrived: ProbeBatch) -> ChunkCoroutine[pa.Table]:
        """Yield the rows of some decided tuples, after all their partners were found."""
        selection = arrived.selection
        tuples = selection.run_set.runs[0].tuples.slice(selection.begin, len(selection))
        if self._each is not None and self._each.wants_partner and arrived.stream in self._copied:
            met = yield from self._each.met(arrived)
            rows = self._rows[arrived.stream].table(filtered(tuples, met > 0))
            yield from self._joining.cut(rows.append_column(MET, pa.array(met[met > 0])))
            return
        if self._each is not None:
            mask = yield from self._each.mask(arrived)
        else:
            reduction = HasPartner(len(selection))
            yield from self._joining.reducing(arrived, reduction, reduction.inside)
            mask = ~reduction.mask if arrived.stream in self._lonely else reduction.mask
        if mask.any():
            yield from self._joining.cut(self._rows[arrived.stream].table(filtered(tuples, mask)))

    def _summed_piece(self, arrived: ProbeBatch) -> ChunkCoroutine[pa.Table]:
        """Yield the rows of some decided tuples with the aggregates over their partners, in order."""
        selection = arrived.selection
        aggregation = Aggregation(self._bound, arrived.stream, selection)
        yield from self._joining.reducing(arrived, aggregation, aggregation.inside if self._by_pairs <= 0 else None)
        # Where the sums leave many tuples open, they are found twice: the next pieces do without them.
        self._by_pairs = _PIECES_BY_PAIRS if 2 * aggregation.left_open > len(selection) else max(self._by_pairs - 1, 0)
        tuples = selection.run_set.runs[0].tuples.slice(selection.begin, len(selection))
        made = aggregation.partials() if arrived.stream in self._copied else aggregation.columns()
        table = self._rows[arrived.stream].table(tuples, made)
        if arrived.stream not in self._lonely and not aggregation.mask.all():
            table = table.filter(pa.array(aggregation.mask))
        yield from self._joining.cut(table)

    def _nearest_piece(self, arrived: ProbeBatch) -> ChunkCoroutine[pa.Table]:
        """Yield the rows of some decided tuples with their nearest partners, and of those without one, in order."""
        assert self._nearest is not None, "the join has nearest partners"
        is_copied = arrived.stream in self._copied
        for part in self._nearest.slices(arrived):
            reduction = self._nearest.reduction(part)
            yield from self._joining.reducing(part, reduction, reduction.inside)
            counts, partners = reduction.ranked()
            lonely = np.flatnonzero(counts == 0) if part.stream in self._lonely else np.empty(0, np.int64)
            rows = (
                [] if partners is None else self._nearest.cut(part, counts, partners, reduction if is_copied else None)
            )
            if not len(lonely):
                for one in rows:
                    yield (yield from one)
                continue
            tables = []
            for one in rows:
                tables.append((yield from one))  # noqa: PERF401 - a comprehension cannot wait for tasks
            yield from self._joining.cut(self._with_lonely(part, counts, lonely, tables))

    def _with_lonely(self, arrived: ProbeBatch, counts: Int32, lonely: Int64, tables: list[pa.Table]) -> pa.Table:
        """Return the rows of tuples with their partners, and of the `lonely` among them, in the order of the tuples."""
        tuples = arrived.selection.run_set.runs[0].tuples.slice(arrived.selection.begin, len(counts))
        alone = self._lonely_rows(arrived.stream, tuples.take(pa.array(lonely)))
        places = np.concatenate([np.repeat(np.arange(len(counts)), counts), lonely])
        return pa.concat_tables([*tables, alone]).take(pa.array(np.argsort(places, kind="stable")))

    def _lonely_rows(self, stream: int, tuples: pa.RecordBatch, made: Mapping[str, pa.Array] = _NONE) -> pa.Table:
        """Return the rows of tuples without a partner; see `_RowsOfOne.table`."""
        rows = self._rows[stream].table(tuples, made)
        return with_nearness(rows) if self._nearest is not None and stream in self._copied else rows


class DecidingPush:
    """One push of a join that decides tuples at their horizon.

    Parameters
    ----------
    horizons : Horizons
    waiting : sequence of StreamWaiting
        What waited before the push.
    ready, alone, windows, watermark_us
        As for `Horizons.joined_by` and `Horizons.passed`; the windows with the new tuples in them.

    Attributes
    ----------
    waiting : sequence of StreamWaiting
        What goes on waiting, once `rows` has been read to its end.
    """

    def __init__(
        self,
        horizons: Horizons,
        waiting: Sequence[StreamWaiting],
        ready: Mapping[int, pa.RecordBatch],
        alone: Mapping[int, pa.RecordBatch],
        windows: Sequence[Window],
        watermark_us: int | None,
    ) -> None:
        self._horizons, self.waiting = horizons, waiting
        self._ready, self._alone = ready, alone
        self._windows, self._watermark_us = tuple(windows), watermark_us

    def rows(self, pairs: Generator[pa.Table]) -> Generator[pa.Table]:
        """Yield the pairs of the push, then the rows of the tuples that are decided in it."""
        partners = self._horizons.new_partners(self._ready)
        with closing(pairs):
            for chunk in pairs:
                for of_stream in partners.values():
                    of_stream.add(chunk)
                yield chunk
        if self._horizons.at_once:
            yield from self._horizons.decided_at_once(self._ready, self._alone, partners, self._windows)
            return
        waiting = self._horizons.joined_by(self.waiting, self._ready, self._alone, partners)
        waiting, decided = self._horizons.passed(waiting, self._windows, self._watermark_us)
        yield from decided
        self.waiting = waiting


class _RowsOfOne:
    """Result rows that have a tuple of one stream, nulls for the other, and the aggregates that were made."""

    def __init__(self, bound: BoundJoin, stream: int) -> None:
        self._schema = pa.schema([field for field in bound.result_schema if field.name != "batch_id"])
        inside = {
            column.name: bound.inside_name(stream, column.column) for column in bound.result if column.stream == stream
        }
        inside |= {f"{bound.names[stream]}_seq": SEQ, "event_time": TS}
        self._inside = [inside.get(field.name) for field in self._schema]
        self._outputs = {output.name: output for output in bound.outputs}
        # Of a column of the stream that lacks only the type is needed.
        self._calculated_of = {
            column: name if of == stream else bound.tuple_schema(of).field(name).type
            for column, (of, name) in inside_columns(bound).items()
        }

    def table(self, tuples: pa.RecordBatch, made: Mapping[str, pa.Array] = _NONE) -> pa.Table:
        """Return a row for each tuple, in their order; `made` has the columns that are no tuple's, by name.

        These have types of their own where they are what aggregates are made of.
        """
        columns, schema = [], self._schema
        for place, (field, name) in enumerate(zip(self._schema, self._inside, strict=True)):
            if field.name in made:
                columns.append(made[field.name])
                if columns[-1].type != field.type:
                    schema = schema.set(place, pa.field(field.name, columns[-1].type))
                continue
            if field.name in self._outputs:
                columns.append(self._outputs[field.name].values(tuples.num_rows, partial(self._column, tuples)))
                continue
            if name is None:
                columns.append(pa.nulls(tuples.num_rows, field.type))
                continue
            column = tuples.column(name)
            columns.append(column if column.type == field.type else column.view(field.type))
        return pa.Table.from_arrays(columns, schema=schema)

    def _column(self, tuples: pa.RecordBatch, wanted: Column) -> pa.Array:
        of = self._calculated_of[wanted]
        return tuples.column(of) if isinstance(of, str) else pa.nulls(tuples.num_rows, of)
