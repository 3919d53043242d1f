-- Read one job.
--
-- mode: read
-- uses: record
-- args: job
-- reply: the record, or nil
-- guarantees: G5 G11

return record_of(job)
