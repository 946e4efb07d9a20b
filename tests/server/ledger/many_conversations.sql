-- Makes a ledger of a million conversations out of one that has the conversation `c`: copies of it, `c 1` to
-- `c 1000000`. docs/measurements/server.md starts servers on such ledgers.
--   sqlite3 FILE < many_conversations.sql
--   sed s/BLOB/BYTEA/ many_conversations.sql | psql URL
CREATE TABLE numbers AS WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000)
    SELECT CAST('c ' || CAST(i AS TEXT) AS BLOB) AS id FROM n;
INSERT INTO verbatim_conversations SELECT salt, id, version
    FROM verbatim_conversations, numbers WHERE conversation = CAST('c' AS BLOB);
INSERT INTO verbatim_turns SELECT salt, id, number, prompt_end, turn_end, finish, num_text_tokens, num_text_bytes,
    version, turn_id, chain, tokens, num_old_messages, messages, num_messages
    FROM verbatim_turns, numbers WHERE conversation = CAST('c' AS BLOB);
INSERT INTO verbatim_answers SELECT salt, id, turn_id, request, output, finish, num_prompt_tokens, num_cached_tokens,
    num_output_tokens, head, answer_id, created FROM verbatim_answers, numbers WHERE conversation = CAST('c' AS BLOB);
UPDATE verbatim_ledger SET num_conversations = (SELECT COUNT(*) FROM verbatim_conversations);
DROP TABLE numbers;
