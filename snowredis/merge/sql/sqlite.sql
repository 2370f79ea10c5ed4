-- Queries of the catalog of SQLite, by name.

-- tables: facts of tables, and why one is not on the list of what can be copied
SELECT l.name AS tab, '' AS what, l.type || CASE
    WHEN l.strict THEN ' STRICT' ELSE '' END AS value, m.sql, CASE
    WHEN l.type <> 'table' THEN 'is a ' || l.type ||
    ' table: drop it, with its triggers, and make it again afterwards'
    END AS refusal FROM pragma_table_list l JOIN sqlite_master m ON m.name = l.name
    WHERE l.schema = 'main' AND l.type <> 'view' AND l.name NOT LIKE 'sqlite\_%' ESCAPE '\';

-- columns: the same of columns
SELECT m.name AS tab, x.name AS what, x.type || CASE
    WHEN x."notnull" THEN ' NOT NULL' ELSE ''
    END || CASE WHEN x.hidden THEN ' generated' ELSE ''
    END AS value, NULL AS refusal FROM sqlite_master m
    JOIN pragma_table_xinfo(m.name) x WHERE m.type = 'table';
