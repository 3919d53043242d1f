-- Compare every record with every index in one look. It reads the whole queue: for tests and for `doctor`.
--
-- mode: read
-- uses: lanes ends holdings audit
-- reply: complaints {job, kind, detail}; none: sound
-- guarantees: G1 G11

walk_lanes()
walk_sets()
walk_holdings()
walk_records()
walk_unique_keys()
return complaints
