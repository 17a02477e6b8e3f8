"""Known bugs, planted one at a time into the real code; the simulator must notice each."""

from __future__ import annotations

from tests.faults.planting import bug as _bug

__all__ = ["BUGS", "COMES_BACK"]

_SAVED = "cell:CellWindows.saved"
_COMMIT = "sink:CommitTarget.commit"
_BATCH = "stream:BatchCommit.__call__"
_COUNT, _IDS = "spec:CountWindow.", "engine:WindowIds."
_ADD, _KEPT = "exchange:Outbox.add", "kept = self._plan.bound.let_through(self._stream, tuples)"
_STORE = "blocks:BlockStore"
_BOUND = "spec:BoundJoin."
_EACH = "engine:EachStream."
_GUESTS = "cell:EpochWindows.push_guests"
_RANGES = "plan:RangeLayout."
_REPEATS = "source:Repeats."

BUGS = (
    # --- the commit protocol
    _bug("no transaction check", (_COMMIT, "if self.holds(batch):", "if False:")),
    _bug(
        "the commit through a fresh snapshot",
        (
            _COMMIT,
            "put_entry(self.path, table.version + 1,",
            "put_entry(self.path, type(table)(self.path).version + 1,",
        ),
    ),
    _bug(
        "a replay skips the drain",
        (
            _BATCH,
            "rows = frame.collect()",
            "held = committer_for(plan)[0]._targets['matches']\n"
            "    held.refresh()\n"
            "    if (held.table.transactions.get(held._identity.join_app, -1)) >= batch_id: return\n"
            "    rows = frame.collect()",
        ),
    ),
    _bug(
        "a replay skips the punctuation's row",
        ("sink:Committer.commit", 'self._append("punctuations"', 'committed and self._append("punctuations"'),
    ),
    _bug(
        "the punctuation ahead of the rows",
        (_BATCH, "plan.bound.punctuation_us(watermark_us)", "_greatest([row['largest_ts'] for row in ledger])"),
    ),
    _bug(
        "the ledger sums every cell",
        (
            "plan:Layout.received",
            "self.is_home(cell, stream)",
            "True",
        ),
    ),
    # --- blocks and state
    _bug("a block retires one batch early", (_SAVED, "since < batch_id", "since <= batch_id")),
    _bug("the list of the retired is forgotten", (_SAVED, "[*waiting, *(", "[*(")),
    _bug(
        "the cache is trusted without the checksum",
        ("engine:RunStore.run", "stream, name)", "stream, name.rpartition('-')[0])"),
        (
            "engine:RunStore.run",
            "if not isinstance(run, SealedRun) or _text(run_facts(run)) != _text(expected):",
            "if False:",
        ),
    ),
    _bug(
        "blocks are named without their checksum",
        (f"{_STORE}.write", 'f"{stem}-{digest}{_SUFFIX}"', 'f"{stem}{_SUFFIX}"'),
        (
            f"{_STORE}.read",
            'expected = name.rsplit("-", 1)[-1].removesuffix(_SUFFIX)',
            "expected = checksum(self._bytes(name))",
        ),
    ),
    _bug(
        "the state stays as it was where a cell has no tuples",
        (
            "cell:Cell.run",
            "blob = self.windows.saved(",
            "blob = self.state.encode() if self.state.batches and not any(map(sum_rows, accepted.values())) "
            "else self.windows.saved(",
        ),
        (
            "cell:Cell.run",
            "parts, asides =",
            "sum_rows = lambda ones: sum(len(one.tuples) for one in ones)\n    parts, asides =",
        ),
    ),
    _bug(
        "a cell is given another cell's state",
        ("tests.faults.model.driver:Driver._cells", "state.get(cell)", "state.get(min(state, default=cell))"),
    ),
    _bug(
        "the state in the order of arrival",
        ("cell:_Part.in_order", 'np.argsort(self.first_seqs, kind="stable")', "range(len(self.own))"),
    ),
    _bug(
        "an exchange block goes when it is read",
        (
            "cell:Cell._sorted_out",
            "row.block, bytes(row.payload))",
            "row.block, bytes(row.payload))\n"
            "        if row.block: __import__('os').unlink(f'{self.plan.block_root}/exchange/{row.block}')",
        ),
    ),
    _bug(
        "committed exchange blocks stay",
        ("stream:BatchPlanner.committed", 'plan.exchange == "reference"', "False"),
    ),
    # --- lateness, windows, time
    _bug("late at the bound", ("exchange:Outbox.add", "before[:-1] > ts", "before[:-1] >= ts")),
    _bug(
        "late at the bound, against the parts before",
        ("engine:StreamClock.late_in_part", "< self._limit", "<= self._limit"),
    ),
    _bug("lateness judged by batch", ("cell:Cell.__init__", "clock.floor = largest,", "clock.floor = None,")),
    _bug("parts in the order of arrival", ("cell:Cell._judged", "sorted(by_number.items())", "by_number.items()")),
    _bug(
        "tuples expire at the bound",
        ("engine:_thinned", "position_key) >= lowest_kept", "position_key) > lowest_kept"),
    ),
    _bug(
        "the largest watermark expires",
        ("engine:low_watermark", "min(lowest, low)", "max(lowest, low)"),
    ),
    _bug(
        "the window without its end",
        ("spec:TimeWindow.rules", "self.extent(right)", "self.extent(right) - 1"),
    ),
    _bug("the band without its end", ("spec:_integers", "return low, high", "return low, max(low, high - 1)")),
    _bug("the real band without its end", ("spec:_floats", "ends[1]", "max(ends[0], math.nextafter(ends[1], -1))")),
    # --- the source
    _bug("rejects have no number", ("source:inside_form", "pa.array(index +", "pa.array(np.arange(len(index)) +")),
    _bug(
        "rejects do not count as read",
        ("source:FileFeed._read_to", "chunk.count", "chunk.tuples.num_rows"),
    ),
    _bug(
        "numbers begin anew in each batch",
        (
            "source:GeneratorFeed._chunk",
            "np.arange(first, last, dtype=np.int64)",
            "np.arange(0, last - first, dtype=np.int64)",
        ),
    ),
    _bug(
        "the planner reads one record twice",
        (
            "stream:BatchPlanner.tasks",
            "low.to_facts()",
            "type(low)(max(0, low.seq - 1)).to_facts()",
        ),
    ),
    # --- windows of each stream's own, count windows, periodic windows
    _bug(
        "each stream has the other's window",
        (
            "spec:TimeWindow.rules",
            "-self.extent(left), self.extent(right)",
            "-self.extent(right), self.extent(left)",
        ),
    ),
    _bug(
        "a count window keeps k - 1",
        (_COUNT + "lowest_kept", "next_seq - self.extent(stream)", "next_seq - self.extent(stream) + 1"),
        asks=("count",),
    ),
    _bug(
        "a count window keeps as many as the shortest",
        (_COUNT + "lowest_kept", "self.extent(stream)", "min(self.counts)"),
        asks=("count",),
    ),
    _bug(
        "the last k - 1 tuples",
        (_COUNT + "rules", "self.extent(right), before_right", "self.extent(right) - 1, before_right"),
        asks=("count",),
    ),
    _bug(
        "stamps begin anew in each batch",
        ("source:precedents", " + batch[other][0].seq", ""),
        asks=("count",),
    ),
    _bug(
        "of tuples at one time the later stream's are first",
        ("spec:preceding", "other < stream", "other > stream"),
        asks=("count",),
    ),
    _bug(
        "the periodic window half as long",
        (
            _IDS + "__init__",
            "zip(window.windows_us, window.lags",
            "zip((w // 2 for w in window.windows_us), window.lags",
        ),
        asks=("periodic",),
    ),
    _bug(
        "the periodic window too long",
        (
            _IDS + "__init__",
            "zip(window.windows_us, window.lags",
            "zip((w + 1 for w in window.windows_us), window.lags",
        ),
        asks=("periodic",),
    ),
    _bug(
        "as many results as pairs, where each is in several windows",
        (
            "engine:JoinPipeline._tables_of_windows",
            "if written:",
            "if written := len(set(expansion.positions[:written].tolist())):",
        ),
        asks=("periodic",),
    ),
    _bug(
        "a lag does not make tuples wait longer",
        (
            "spec:PeriodicWindow.extent",
            "self.windows_us[stream] - 1 + lag_us",
            "self.windows_us[stream] - 1 + 0 * lag_us",
        ),
        asks=("periodic",),
    ),
    # --- three streams
    _bug(
        "a window between neighbours only",
        ("spec:TimeWindow.rules", "range(left + 1, count)", "range(left + 1, min(left + 2, count))"),
        asks=("three",),
    ),
    _bug(
        "what is asked of two streams' results is not asked of one's",
        ("engine:JoinPipeline._step", "frozenset(joined)", "frozenset({min(joined)})"),
        asks=("three",),
    ),
    # --- one input under two names
    _bug(
        "a tuple meets itself",
        ("engine:same_inputs", "sources[i] == sources[j])", "sources[i] is sources[j] is None)"),
        asks=("self",),
    ),
    _bug(
        "tuples of one time are taken for the same",
        (
            "engine:Residual.mask",
            "sequence_numbers(selection[left_stream]) != sequence_numbers(selection[right_stream])",
            "selection[left_stream].key(0) != selection[right_stream].key(0)",
        ),
        asks=("self",),
    ),
    _bug(
        "pairs of a tuple with itself are left out though asked for",
        ("engine:same_inputs", "if join.include_self_pairs:", "if False:"),
        asks=("self",),
    ),
    # --- filters and residuals
    _bug(
        "a filter for the first part only",
        (_ADD, _KEPT, f"{_KEPT}\n    if kept is not None and self._part: kept[:] = True"),
        asks=("where",),
    ),
    _bug(
        "a filter is ignored when a batch is done again",
        (
            "stream:BatchPlanner.tasks",
            "feeds, plan = self._tasks.feeds, self._options.plan",
            "feeds, plan = self._tasks.feeds, self._options.plan\n"
            "    vars(plan.bound)['_again'] = self._latest is None",
        ),
        (_ADD, _KEPT, f"{_KEPT}\n    if kept is not None and vars(self._plan.bound).get('_again'): kept[:] = True"),
        asks=("where",),
    ),
    _bug(
        "what is filtered out does not tell the time",
        (
            _ADD,
            "ts = tuples.column(TS).to_numpy()",
            "ts = tuples.column(TS).to_numpy()\n"
            "    let = self._plan.bound.let_through(self._stream, tuples)\n"
            "    ts = ts if let is None else np.where(let, ts, np.minimum(ts, self.largest_ts))",
        ),
        asks=("where",),
    ),
    _bug(
        "late and filtered out is neither",
        (_ADD, "np.count_nonzero(~kept)", "np.count_nonzero(~kept & ~late)"),
        asks=("where",),
    ),
    _bug(
        "unknown is as good as true",
        ("spec:holds", "fill_null(False)", "fill_null(True)"),
        asks=("residual",),
    ),
    _bug(
        "the residual is not asked of the last stream",
        (
            "engine:JoinPipeline._grown",
            "grown = step.standing(grown, arrived)",
            "grown = step.standing(grown, arrived) if len(order) > 1 else grown",
        ),
        (
            "engine:JoinPipeline._few",
            "grown = step.standing({arrived.stream: arrived.selection.take(positions), stream: found}, arrived)",
            "grown = {arrived.stream: arrived.selection.take(positions), stream: found}",
        ),
        asks=("residual",),
    ),
    # --- idle streams, records from the future
    _bug(
        "what is older than the watermark is not late after a silence",
        ("cell:Cell.__init__", "= largest, self.state.watermark_us", "= largest, None"),
        asks=("idle",),
    ),
    _bug(
        "a record from the future tells the time of the batches after it",
        (
            "source:FileScan._in_order",
            "in_order(seen, self._tail.time, limit, rhythm)",
            "in_order(seen, self._tail.time, None, rhythm)",
        ),
        asks=("future",),
    ),
    # --- clocks that change
    _bug("a position forgets how its times came", ("source:ScannedPiece.position", "rhythm=rhythm", "rhythm=()")),
    # --- a window server
    _bug(
        "windows go on at another state row than that they were saved as",
        ("cell:LiveWindows.take", "found[0] != row", "False"),
        asks=("served",),
    ),
    _bug(
        "a journal loses what is put together",
        ("engine:Journal.after", "_folded(stream, form, pieces,", "_folded(stream, form, pieces[-1:],"),
        asks=("served",),
    ),
    _bug(
        "a journal lets tuples go a second before their window does",
        ("engine:Journal.after", "piece.span[1] >= low", "piece.span[1] > low + 10**6"),
        asks=("served",),
    ),
    # --- bad files
    _bug(
        "quarantine forgets the rest when a batch is done again",
        (
            "stream:BatchPlanner.tasks",
            "feeds, plan = self._tasks.feeds, self._options.plan",
            "feeds, plan = self._tasks.feeds, self._options.plan\n"
            "    from streamjoin_ds.source.files.file_feed import FileFeed\n"
            "    FileFeed._again = self._latest is None",
        ),
        (
            "source:FileFeed.read",
            "asides = [] if end is None else",
            "asides = [] if end is None or getattr(self, '_again', False) else",
        ),
        asks=("quarantine",),
    ),
    _bug(
        "a late file is set aside at every start",
        (
            "source:FileScan._put_aside",
            "names = name_sum(bad.names, tail.names)",
            "names = tail.names",
        ),
        asks=("quarantine",),
    ),
    _bug(
        "a replay finds late files anew",
        ("source:FileFeed.files_between", "not self._stream.quarantines", "True"),
        asks=("quarantine",),
    ),
    _bug(
        "a line is too long where reading it began",
        (
            "source:LineBlocks._long_line",
            "begin = 0",
            "begin = 0 if self._rest.find(b'\\n', 0, MAX_LINE_BYTES) < 0 else len(self._rest)",
        ),
        asks=("quarantine",),
    ),
    # --- restarts under other settings
    _bug(
        "the session's partitions in place of the state's",
        ("tests.faults.model.settings:kept_partitions", "return of_state", "return of_session"),
        asks=("settings",),
    ),
    _bug(
        "another delay is not refused",
        ("checkpoint:CheckpointIdentity.check", "bound.fingerprint != self.bound.fingerprint", "False"),
        asks=("settings",),
    ),
    _bug(
        "blocks of another exchange stay",
        ("stream:BatchPlanner.committed", "or not self._is_swept", ""),
        asks=("settings",),
    ),
    # --- what keeps the tables small
    _bug(
        "compaction does not check that replaced files are there",
        ("sink:_replaced", "any(unquote(file.path) not in log.live for file in removes)", "False"),
        asks=("upkeep",),
    ),
    _bug(
        "compaction leaves out what is before a gap",
        ("sink:_rewritten", "for file in group]", "for file in group[1:]]"),
        asks=("upkeep",),
    ),
    _bug(
        "VACUUM removes files that the table has",
        ("sink:vacuum", "if name in table.live:", "if False:"),
        asks=("upkeep",),
    ),
    _bug(
        "the log is cleaned beyond its last checkpoint",
        ("sink:clean_log", "if file.version < base]", "if file.version <= table.version and base]"),
        asks=("upkeep",),
    ),
    # --- layouts that change
    _bug(
        "no guests",
        ("exchange:Outbox._dealt", "reversed(self._epochs.live)", "self._epochs.live[-1:]"),
        asks=("relaid",),
    ),
    _bug(
        "guests are never late",
        (
            "cell:Cell._judged",
            "append(arrived.kept(~clock.late_in_part(arrived.tuples[TS].to_numpy())))",
            "append(arrived)",
        ),
        asks=("relaid",),
    ),
    _bug(
        "guests come by the new layout",
        ("exchange:Outbox.rows", "epoch.layout.cells_of(", "current.layout.cells_of("),
        asks=("relaid",),
    ),
    _bug(
        "what guests find among themselves is told twice",
        (_GUESTS, "if is_own.all():", "if True:"),
        asks=("relaid", "three"),
    ),
    _bug(
        "an epoch is over when one stream's tuples are",
        ("cell:EpochWindows.is_over", "return False", "continue"),
        asks=("relaid",),
    ),
    _bug(
        "an epoch counts the first records of the next as its own",
        (_GUESTS, ".to_numpy() < end", ".to_numpy() <= end"),
        asks=("relaid", "three"),
    ),
    _bug(
        "a restart forgets the older epochs",
        ("cell:CellWindows._kept", "zip(epochs, blobs, strict=True)", "[*zip(epochs, blobs)][-1:]"),
        asks=("relaid",),
    ),
    # --- cells that come and go
    _bug(
        "a new cell does not know the time",
        (
            "checkpoint:states_of_cells",
            "batches=0, windows",
            "watermark_us=None, largest_us=[None] * len(CellState.decode(states[0]).largest_us), batches=0, windows",
        ),
        asks=("cores",),
    ),
    _bug(
        "tuples that wait are dealt to as many cells as there were",
        (
            "checkpoint:dealt_states",
            "cell, stream), of_old, of_new)",
            "cell, stream), min(of_old, of_new), of_new)",
        ),
        asks=("how", "cores"),
    ),
    _bug(
        "what other cells still name is removed with what an old cell has left",
        (
            "checkpoint:dealt_states",
            "() if entry[1] in named else _heirs(entry[1], cell, old, new)",
            "range(new.cells)",
        ),
        asks=("how", "cores"),
    ),
    _bug(
        "a cell that is gone does not hear the time",
        (
            "exchange:Outbox.rows",
            "none if cell else totals",
            "_Totals(NO_TIME, *NOTHING) if cell >= current.layout.cells else none if cell else totals",
        ),
        asks=("cores",),
    ),
    _bug(
        "a cell that is gone takes its older windows for those of new tuples",
        ("cell:CellWindows.enter", "if epoch.number > newest:", "if epoch.number > newest + 1:"),
        asks=("cores",),
    ),
    _bug(
        "a batch that was planned for fewer cells is not heard by new ones",
        (
            "stream:BatchPlanner._epochs",
            "told.heard_by(max(told.cells, plan.cells))",
            "told",
        ),
        asks=("cores",),
    ),
    # --- ranges of a band attribute
    _bug(
        "a tuple is counted in each range that it goes to",
        (_RANGES + "received", "is_counted |= first == self.range_of_group(stream)[group]", "is_counted[:] = True"),
        asks=("ranges",),
    ),
    _bug(
        "a tuple goes to its first range alone",
        (_RANGES + "deal", "copies = last - first + 1", "copies = np.ones_like(first)"),
        asks=("ranges",),
    ),
    _bug(
        "a range ends at its boundary for every stream",
        (_RANGES + "_limits_of", "self.reach.most_above(self.anchor, stream)", "0 * self.reach.most_above(0, 1)"),
        asks=("ranges",),
    ),
    _bug(
        "a tuple without a key is in no cell",
        ("exchange:Outbox._dealt", "if epoch is self._epochs.current", "if False"),
        asks=("ranges",),
    ),
    # --- streams of many partitions
    _bug(
        "what is late is judged across partitions",
        ("exchange:Outbox.add", "if chunk.before is not None:", "if False:"),
        asks=("parted",),
    ),
    _bug(
        "the partition that is furthest tells the time",
        ("stream:BatchPlanner.tasks", "stream: last.low_us", "stream: last.largest_us"),
        asks=("parted",),
    ),
    _bug(
        "a partition's largest time is forgotten between batches",
        ("source:PartitionedFeed.advance", "time_us=feed.time_before(at)", "time_us=None"),
        asks=("parted",),
    ),
    _bug(
        "what comes from a partition that was idle is never late",
        (
            "engine:StreamClock.late_in_part",
            "< self._limit",
            "< (INT64_MIN if self.by_partition else self._limit)",
        ),
        asks=("idle", "parted"),
    ),
    _bug(
        "partitions are numbered anew by their names",
        (
            "source:PartitionedFeed._with_new",
            "return replace(start, partitions={**start.partitions, **found})",
            "return replace(start, partitions={name: replace(at, number=place) for place, (name, at) in"
            " enumerate(sorted({**start.partitions, **found}.items()))})",
        ),
        asks=("parted",),
    ),
    _bug(
        "each of two streams over one folder lists it for itself",
        ("source:begin_alike", "feed.follow(leader)", "pass"),
        asks=("self", "parted"),
    ),
    # --- conditions that find
    _bug(
        "limits are rounded the wrong way",
        ("spec:Limit._sum", "if self.is_upper else", "if not self.is_upper else"),
        asks=("found",),
    ),
    _bug(
        "the event times are found without the end of their bound",
        ("spec:tighter_times", "max(lo, -moment.most_us)", "max(lo, 1 - moment.most_us)"),
        asks=("found",),
    ),
    # --- tuples that are decided at their horizon
    _bug(
        "a tuple is decided at its own moment",
        (_BOUND + "horizon", "self.join.window.lowest_kept(stream, watermark_us, None)", "watermark_us"),
        asks=("how",),
    ),
    _bug(
        "what a waiting tuple may meet is dropped with its own window",
        (_BOUND + "lowest_kept", "lowest - self._waits[stream]", "lowest"),
        asks=("how",),
    ),
    _bug(
        "the punctuation does not wait for what waits",
        (_BOUND + "punctuation_us", "not self.decided", "True"),
        asks=("how",),
    ),
    _bug(
        "a restart decides anew what was decided",
        ("engine:_waiting", "None if horizon_us is None else int(horizon_us)", "None"),
        asks=("how",),
    ),
    _bug(
        "tuples with null keys make no row",
        ("engine:Horizons.joined_by", "if stream in alone", "if False"),
        asks=("how",),
    ),
    _bug(
        "a partner in one of the other streams is enough",
        (_EACH + "mask", "is_open[tried] = reduction.mask", "is_open[tried] |= reduction.mask"),
        asks=("each",),
    ),
    _bug(
        "a null in a column keeps a tuple from partners in all streams",
        ("engine:Joinable.__init__", "if bound.row_kind.of_each", "if False"),
        asks=("each",),
    ),
    # --- sums over partners
    _bug(
        "partners are collected in the order in which they are found",
        (
            "engine:Collected._shrink",
            "np.lexsort((numbers, times, positions))",
            "np.lexsort((positions,))",
        ),
        asks=("reduce",),
    ),
    _bug(
        "a negative sum of floats is read as a positive one",
        ("engine:Digits.rounded", "if is_negative.any():", "if False:"),
        asks=("reduce",),
    ),
    _bug(
        "a tuple without a partner is summed up where only those with one are",
        ("engine:Horizons._summed_piece", "arrived.stream not in self._lonely and not", "False and not"),
        asks=("reduce",),
    ),
    _bug(
        "the partners of a tuple lie in several cells, and nobody puts their answers together",
        ("plan:copied_streams", "if layout.copies(stream) > 1", "if False"),
        asks=("how", "split"),
    ),
    _bug(
        "the commit takes the home cell's word",
        ("cell:_all", "for other in others:", "for other in []:"),
        ("cell:_all", "if any(table is None for table in tables):", "if tables[0] is None:"),
        asks=("how", "split"),
    ),
    _bug(
        "a row of semi comes from each cell that has a partner",
        ("cell:_any", ".take(pa.array(_firsts(numbers)))", ""),
        asks=("how", "split"),
    ),
    _bug(
        "a partner in the home cell is the only one that counts",
        ("cell:_any", "if table is not None]", "if table is not None][:1]"),
        asks=("how", "split"),
    ),
    _bug(
        "the rank of a nearest partner is that among the partners in its cell",
        ("cell:_nearest", "if bound.has_ranks:", "if False:"),
        asks=("nearest", "split"),
    ),
    _bug(
        "the nearest partners of each cell are kept",
        ("cell:_nearest", "ranks < bound.join.nearest.k", "True"),
        asks=("nearest", "split"),
    ),
    _bug(
        "of partners in several cells that are equally near the one with the smaller number is nearer",
        ("cell:_nearest", "(partners, *reversed(ties), near,", "(partners, near,"),
        asks=("nearest", "split"),
    ),
    _bug(
        "a tuple without a partner in its home cell is alone",
        ("cell:_nearest", "ranks == 0", "True"),
        asks=("nearest", "split"),
    ),
    _bug(
        "in which streams a tuple has partners is what the last cell says",
        ("cell:_each", "np.bitwise_or.at(met, tuples, told.to_numpy())", "met[tuples] = told"),
        asks=("each", "split"),
    ),
    _bug(
        "the partners in one cell are summed up",
        ("engine:whole_aggregates", "in partials:", "in partials[:1]:"),
        asks=("reduce", "split"),
    ),
    _bug(
        "the home cell says which tuples have partners that are summed up",
        ("cell:_summed", "_firsts(np.concatenate(numbers))", "_firsts(numbers[0])"),
        asks=("reduce", "split"),
    ),
    _bug(
        "nothing is carried between the digits of several cells' sums",
        ("engine:Digits.with_partials", "_carried(digits)", "digits"),
        asks=("reduce", "split"),
    ),
    _bug(
        "the smallest of several cells' values is the largest of them",
        ("engine:Extreme._more", "np.maximum if self._is_max else np.minimum", "np.maximum"),
        asks=("reduce", "split"),
    ),
    _bug(
        "what waits differs between the cells that share its blocks",
        ("engine:Horizons.new_partners", "and stream not in self._copied", ""),
        asks=("how", "split"),
    ),
    _bug(
        "the commit's blocks are removed before it",
        (_SAVED, "batch_id - self._plan.retain_batches, name", "batch_id - self._plan.retain_batches - 1, name"),
        asks=("how", "split"),
    ),
    _bug(
        "nobody removes the commit's blocks",
        (_SAVED, "for name in answers", "for name in ()"),
        asks=("how", "split"),
    ),
    _bug(
        "what one stream waits for is dealt as the other is",
        (
            "checkpoint:dealt_states",
            "new.group_in_cell(cell, stream), of_old",
            "new.group_in_cell(cell, 0), of_old",
        ),
        asks=("how", "split", "cores"),
    ),
    # --- nearest partners
    _bug(
        "the first partner that is found is the nearest of its distance",
        (
            "engine:NearestPartners.add",
            "ties = [rests, near.times_us(), sequence_numbers(near)]",
            "ties = [rests, 0 * near.times_us(), 0 * sequence_numbers(near)]",
        ),
        asks=("nearest",),
    ),
    _bug(
        "a direction narrows the other stream's window",
        ("spec:Nearest.narrowed", 'self.direction == "backward"', 'self.direction == "forward"'),
        asks=("nearest",),
    ),
    _bug(
        "each part of the tuples keeps a partner less",
        ("engine:NearestPartners.__init__", "bound.join.nearest.k", "max(bound.join.nearest.k - 1, 1)"),
        asks=("nearest",),
    ),
    _bug(
        "the partner that a kernel finds first is the nearest of its distance",
        (
            "engine:DistanceSteps.taking",
            "(kernel, self._kernel, own, run_set.columns(self._other), ties)",
            "(kernel, self._kernel, own, run_set.columns(self._other), ())",
        ),
        asks=("nearest",),
    ),
    # --- tables beside streams
    _bug(
        "a replay joins the newest version",
        (
            "stream:BatchPlanner.tasks",
            "batch.tables,",
            "self._tables.decided(batch.tables) if self._tables else batch.tables,",
        ),
        asks=("tables",),
    ),
    _bug(
        "a worker keeps the version that it joined first",
        ("cell:give_tables", "tables.versions.get(name) != block", "name not in tables.versions"),
        asks=("tables",),
    ),
    _bug(
        "a version's block goes when the next one comes",
        ("blocks:NamedBlocks.committed", "self._commits - since > self._retain_batches + 1", "True"),
        (
            "blocks:NamedBlocks.committed",
            "for name in self._named.difference(names)",
            "for name in {*self._named, *self._store.names(self._prefix)}.difference(names)",
        ),
        asks=("tables",),
    ),
    # --- tuples that come twice
    _bug(
        "a worker that starts anew knows no keys",
        (_REPEATS + "before", "return self._gathered(nothing, self._feed.initial(), start)", "return nothing"),
        (_REPEATS + "before", "if seen.is_complete(waypoint_us):", "return nothing\n        if False:"),
        asks=("unique",),
    ),
    _bug(
        "what is a duplicate is judged in each batch",
        ("spec:SeenKeys.judged", "for run in self._runs", "for run in ()"),
        asks=("unique",),
    ),
    _bug(
        "keys are gathered from where the window begins, without the delay",
        ("source:first_needed", "start_us - reach_us", "start_us"),
        ("source:next_waypoints", "one.time_us < end_us - reach_us", "one.time_us < end_us"),
        (_REPEATS + "before", "if seen.is_complete(waypoint_us)", "if True"),
        asks=("unique",),
    ),
    _bug(
        "a key is remembered for as long as it is there",
        ("spec:_repeats", "np.maximum(time - span_us, floors_us[sequence])", "time - span_us"),
        asks=("unique",),
    ),
    _bug(
        "a copy a window away is none",
        ("spec:_repeats", 'time + span_us, "right"', 'time + span_us, "left"'),
        ("spec:_repeats", 'oldest, "left"', 'oldest, "right"'),
        asks=("unique",),
    ),
    # --- devices
    _bug(
        "all devices have one clock",
        (
            "source:DeviceFeed._of",
            "DeviceRecords(records.devices, records.codes[order])",
            "DeviceRecords(records.devices[:1], 0 * records.codes[order])",
        ),
        asks=("devices",),
    ),
    _bug(
        "a device holds the stream from its first record on",
        ("source:DeviceClocks.after", "np.array(at, np.int64) - look_ahead", "np.array(at, np.int64)"),
        asks=("devices",),
    ),
    _bug(
        "who joins soon after a batch is not seen",
        ("source:DeviceFeed.advance", "start.clocks.joining(self._heard, *later)", "()"),
        asks=("devices",),
    ),
    _bug(
        "a device that is idle is forgotten though it is ahead",
        ("source:DeviceClocks.settled", "~is_idle | (self.times_us > low_us)", "~is_idle"),
        asks=("devices", "idle"),
    ),
    _bug(
        "copies are told across devices",
        ("spec:unique_key", "asked.device_columns", "()"),
        asks=("devices", "unique"),
    ),
    _bug(
        "a key is forgotten by the clock of all devices",
        ("spec:SeenKeys.judged", "int(largest[-1]) if low_us is None else max(low_us, MIN_TS_US)", "int(largest[-1])"),
        asks=("devices", "unique"),
    ),
    # --- columns of other types
    _bug(
        "a decimal becomes the float that Arrow makes of it",
        (
            "spec:Evaluation._as_float",
            "nearest_floats(values)",
            "values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)",
        ),
        asks=("values",),
    ),
    _bug(
        "windows keep a NaN that a band compares",
        ("engine:NullKeyMask.mask", "arrived.has_nan(self._floats)", "False"),
        ("engine:NullKeyMask.mask", "for place in self._floats:", "for place in ():"),
        asks=("values",),
    ),
    _bug(
        "of a decimal's number the first digits count",
        ("spec:key_values", "view(np.int64)[::2]", "view(np.int64)[::2] // 100 * 100"),
        asks=("values",),
    ),
    # --- drivers without Spark
    _bug(
        "a driver that was stopped writes over the offsets of another",
        ("checkpoint:BatchLog._put", "data, put_new", "data, Path.replace"),
        asks=("local",),
    ),
    _bug(
        "a batch that was planned is planned anew",
        ("checkpoint:BatchLog.__init__", "None if self.batch > last else source_offset(spark.offsets[last])", "None"),
        asks=("local",),
    ),
)

# The code once was like this. One schedule in some thousands meets the bug (`test_regressions` has one).
COMES_BACK = _bug(
    "a block that comes back retires as if it had not",
    (_SAVED, "if entry[1] not in blocks", "if True"),
    (_SAVED, "self._plan.retain_batches}", "self._plan.retain_batches} - blocks"),
)
