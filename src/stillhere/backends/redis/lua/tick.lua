-- Move the lease clock: supervisors call it each half gap, so that it keeps pace while anybody is there.
--
-- mode: write
-- uses: lanes asks
-- reply: {lease_clock, gap_ms, suspects, solo, asks}
-- guarantees: G3 G14

local asks = {}
for i, asked in ipairs(questions()) do
  if i <= 20 then asks[i] = {id = asked.id, worker = asked.worker, job = asked.job} end
end
return {lease_clock = lease, gap_ms = gap, suspects = suspects_waiting(), solo = waiting_apart(SOLO), asks = asks}
