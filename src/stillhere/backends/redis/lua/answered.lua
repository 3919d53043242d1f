-- Read the answer to a question.
--
-- mode: read
-- args: id
-- reply: the text, or nil
-- guarantees: G12

return call('GET', key('answer:' .. id)) or nil
