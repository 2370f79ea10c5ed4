-- Queries of the catalog of SQLite, by name.

-- tables: every table, and why it is not copied
SELECT NULL AS schema_name, l.name AS tab, '"' || replace(l.name, '"', '""') || '"' AS sql, '' AS refusal, CASE
    WHEN l.type <> 'table' THEN 'is a ' || l.type || ' table: drop it, with its triggers, and make it again afterwards'
    WHEN m.sql LIKE '%ON CONFLICT REPLACE%' OR m.sql LIKE '%ON CONFLICT IGNORE%' THEN
    'has an ON CONFLICT clause, with which a row can be lost silently: make the table again without it'
    END AS refused FROM pragma_table_list l JOIN sqlite_master m ON m.name = l.name
    WHERE l.schema = 'main' AND l.type <> 'view' AND l.name NOT LIKE 'sqlite\_%' ESCAPE '\' ORDER BY 2;

-- columns: every column, by what its type converts values to; a table without an INTEGER PRIMARY KEY has a rowid, too
SELECT NULL AS schema_name, m.name AS tab, x.name AS name, x.type AS type, x.type || CASE
    WHEN x."notnull" THEN ' NOT NULL' ELSE '' END || CASE WHEN x.hidden THEN ' generated' ELSE '' END AS description,
    CASE WHEN x.type LIKE '%int%' THEN 'int' WHEN x.type LIKE '%char%' OR x.type LIKE '%clob%' OR x.type LIKE '%text%'
    THEN 'text' WHEN x.type LIKE '%blob%' OR x.type = '' THEN 'bytes' WHEN x.type LIKE '%real%' OR x.type LIKE '%floa%'
    OR x.type LIKE '%doub%' THEN 'float' ELSE 'other' END AS kind, NULL AS greatest, x.hidden IN (2, 3) AS is_generated, x.pk = 1 AND upper(x.type) = 'INTEGER' AND NOT EXISTS (SELECT 1
    FROM pragma_table_xinfo(m.name) o WHERE o.pk > 1) AND NOT l.wr AS is_counter,
    NULL AS collation, NULL AS refusal, x.cid AS position FROM sqlite_master m
    JOIN pragma_table_list l ON l.name = m.name AND l.schema = 'main' JOIN pragma_table_xinfo(m.name) x
    WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite\_%' ESCAPE '\'
    UNION ALL SELECT NULL, l.name, 'rowid', 'rowid', '', 'int', NULL, 0, 0, NULL, NULL, 100000 FROM pragma_table_list l
    WHERE l.schema = 'main' AND l.type = 'table' AND NOT l.wr AND l.name NOT LIKE 'sqlite\_%' ESCAPE '\'
    AND NOT EXISTS (SELECT 1 FROM pragma_table_xinfo(l.name) o WHERE lower(o.name) = 'rowid')
    AND NOT (EXISTS (SELECT 1 FROM pragma_table_xinfo(l.name) o WHERE o.pk = 1 AND upper(o.type) = 'INTEGER')
    AND NOT EXISTS (SELECT 1 FROM pragma_table_xinfo(l.name) o WHERE o.pk > 1))
    ORDER BY 2, position;

-- keys: unique keys without a condition or an expression, and their columns
SELECT NULL AS schema_name, m.name AS tab, 1 AS is_primary, 'key' AS name, (SELECT json_group_array(name)
    FROM (SELECT name FROM pragma_table_xinfo(m.name) WHERE pk > 0 ORDER BY pk)) AS columns FROM sqlite_master m
    WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite\_%' ESCAPE '\'
    AND EXISTS (SELECT 1 FROM pragma_table_xinfo(m.name) WHERE pk > 0)
    UNION ALL SELECT NULL, m.name, 0, i.name, (SELECT json_group_array(name) FROM (SELECT name
    FROM pragma_index_info(i.name) ORDER BY seqno)) FROM sqlite_master m JOIN pragma_index_list(m.name) i
    WHERE m.type = 'table' AND i."unique" AND NOT i.partial AND i.origin <> 'pk'
    AND NOT EXISTS (SELECT 1 FROM pragma_index_info(i.name) e WHERE e.name IS NULL)
    ORDER BY 2, 3 DESC, 4;

-- foreign_keys: foreign keys, and their columns; names are in any case, and REFERENCES parent leads to its primary key
SELECT NULL AS schema_name, m.name AS tab, (SELECT json_group_array("from") FROM (SELECT "from"
    FROM pragma_foreign_key_list(m.name) WHERE id = f.id ORDER BY seq)) AS columns, NULL AS parent_schema, p.name AS parent,
    (SELECT json_group_array(name) FROM (SELECT x.name FROM pragma_foreign_key_list(m.name) o
    JOIN pragma_table_xinfo(p.name) x ON lower(x.name) = lower(o."to") OR o."to" IS NULL AND x.pk = o.seq + 1
    WHERE o.id = f.id ORDER BY o.seq)) AS parents, '' AS timing FROM sqlite_master m
    JOIN pragma_foreign_key_list(m.name) f ON f.seq = 0
    JOIN sqlite_master p ON p.type = 'table' AND lower(p.name) = lower(f."table")
    WHERE m.type = 'table' ORDER BY m.name, f.id;

-- triggers: triggers, which are dropped and made again
SELECT NULL AS schema_name, tbl_name AS tab, name, '' AS mode, sql AS definition, NULL AS refusal
    FROM sqlite_master WHERE type = 'trigger' ORDER BY name;

-- counters: the greatest number that each AUTOINCREMENT gave
SELECT NULL AS schema_name, s.name AS tab, x.name AS col, NULL AS name, s.seq AS last FROM sqlite_sequence s
    JOIN pragma_table_xinfo(s.name) x ON x.pk = 1 ORDER BY s.name;
