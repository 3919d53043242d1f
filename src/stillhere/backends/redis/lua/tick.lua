-- Move the lease clock: supervisors call it each half gap, so that it keeps pace while anybody is there.
--
-- mode: write
-- uses: lanes
-- reply: {lease_clock, gap_ms, suspects}
-- guarantees: G3 G14

return {lease_clock = lease, gap_ms = gap, suspects = suspects_waiting()}
