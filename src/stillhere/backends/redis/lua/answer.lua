-- Keep the answer to a question that is there; so the first one counts.
--
-- mode: write
-- uses: asks
-- args: id text
-- reply: nothing
-- guarantees: G12

for _, asked in ipairs(questions()) do
  if asked.id == id then
    call('HDEL', key('asks'), id)
    call('SET', key('answer:' .. id), cut(text, 65536), 'PX', ASK_MS)
  end
end
return nil
