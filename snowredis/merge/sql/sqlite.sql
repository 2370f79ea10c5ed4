-- Queries of the catalog of SQLite, by name.

-- tables: every table, and why it is not copied
SELECT NULL AS schema_name, l.name AS tab, '"' || replace(l.name, '"', '""') || '"' AS sql, '' AS refusal, CASE
    WHEN l.type <> 'table' THEN 'is a ' || l.type || ' table: drop it, with its triggers, and make it again afterwards'
    WHEN m.sql LIKE '%ON CONFLICT%' AND (m.sql LIKE '%ON CONFLICT REPLACE%' OR m.sql LIKE '%ON CONFLICT IGNORE%') THEN
    'has an ON CONFLICT clause, with which a row can be lost silently: make the table again without it'
    END AS refused FROM pragma_table_list l JOIN sqlite_master m ON m.name = l.name
    WHERE l.schema = 'main' AND l.type <> 'view' AND l.name NOT LIKE 'sqlite\_%' ESCAPE '\' ORDER BY 2;

-- columns: every column; a table without an INTEGER PRIMARY KEY has a rowid, too
SELECT NULL AS schema_name, m.name AS tab, x.name AS col, x.type AS type, x.type || CASE
    WHEN x."notnull" THEN ' NOT NULL' ELSE '' END || CASE WHEN x.hidden THEN ' generated' ELSE '' END AS description,
    x.hidden IN (2, 3) AS is_generated, x.pk = 1 AND upper(x.type) = 'INTEGER' AND NOT EXISTS (SELECT 1
    FROM pragma_table_xinfo(m.name) o WHERE o.pk > 1) AND NOT l.wr AS is_counter,
    NULL AS collation, NULL AS refusal, x.cid AS position FROM sqlite_master m
    JOIN pragma_table_list l ON l.name = m.name AND l.schema = 'main' JOIN pragma_table_xinfo(m.name) x
    WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite\_%' ESCAPE '\'
    UNION ALL SELECT NULL, l.name, 'rowid', 'INTEGER', '', 0, 0, NULL, NULL, 100000 FROM pragma_table_list l
    WHERE l.schema = 'main' AND l.type = 'table' AND NOT l.wr AND l.name NOT LIKE 'sqlite\_%' ESCAPE '\'
    AND NOT EXISTS (SELECT 1 FROM pragma_table_xinfo(l.name) o WHERE lower(o.name) = 'rowid')
    AND NOT (EXISTS (SELECT 1 FROM pragma_table_xinfo(l.name) o WHERE o.pk = 1 AND upper(o.type) = 'INTEGER')
    AND NOT EXISTS (SELECT 1 FROM pragma_table_xinfo(l.name) o WHERE o.pk > 1))
    ORDER BY 2, 10;

-- keys: columns of unique keys
SELECT NULL AS schema_name, m.name AS tab, 'key' AS name, x.name AS col, 1 AS is_primary, x.pk AS position
    FROM sqlite_master m JOIN pragma_table_xinfo(m.name) x
    WHERE m.type = 'table' AND x.pk > 0 AND m.name NOT LIKE 'sqlite\_%' ESCAPE '\'
    UNION ALL SELECT NULL, m.name, i.name, c.name, 0, c.seqno
    FROM sqlite_master m JOIN pragma_index_list(m.name) i JOIN pragma_index_info(i.name) c
    WHERE m.type = 'table' AND i."unique" AND NOT i.partial AND i.origin <> 'pk' AND c.name IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM pragma_index_info(i.name) e WHERE e.name IS NULL)
    ORDER BY 2, 5 DESC, 3, 6;

-- foreign_keys: columns of foreign keys; REFERENCES parent leads to its primary key
SELECT NULL AS schema_name, m.name AS tab, f.id AS name, f."from" AS col, NULL AS parent_schema, p.name AS parent,
    coalesce(f."to", (SELECT x.name FROM pragma_table_xinfo(p.name) x WHERE x.pk = f.seq + 1)) AS parent_col, '' AS timing
    FROM sqlite_master m JOIN pragma_foreign_key_list(m.name) f
    JOIN sqlite_master p ON p.type = 'table' AND lower(p.name) = lower(f."table")
    WHERE m.type = 'table' ORDER BY m.name, f.id, f.seq;

-- triggers: triggers, which are dropped and made again
SELECT NULL AS schema_name, tbl_name AS tab, name, '' AS mode, sql AS definition
    FROM sqlite_master WHERE type = 'trigger' ORDER BY name;

-- counters: the greatest number that each AUTOINCREMENT gave
SELECT NULL AS schema_name, s.name AS tab, x.name AS col, NULL AS name, s.seq AS last FROM sqlite_sequence s
    JOIN pragma_table_xinfo(s.name) x ON x.pk = 1 ORDER BY s.name;
