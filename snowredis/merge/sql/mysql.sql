-- Queries of the catalog of MariaDB and MySQL, by name.

-- tables: every table; "refusal": why the first database cannot hold its rows in one transaction, "refused": why it is not copied
SELECT NULL AS schema_name, table_name AS tab, CONCAT('`', REPLACE(table_name, '`', '``'), '`') AS `sql`,
    IF(engine NOT IN ('InnoDB', 'ROCKSDB'), CONCAT('is of the engine ', engine,
    ', which has no transactions: ALTER TABLE `', REPLACE(table_name, '`', '``'), '` ENGINE=InnoDB, ROW_FORMAT=DEFAULT'), '') AS refusal,
    CASE WHEN table_type = 'SYSTEM VERSIONED' THEN
    'is system-versioned, and its history cannot be copied: DROP SYSTEM VERSIONING in both'
    WHEN table_type <> 'BASE TABLE' THEN CONCAT('is a ', table_type)
    WHEN BINARY table_name IN (SELECT k.table_name FROM information_schema.key_column_usage k
    WHERE k.table_schema = DATABASE() AND k.referenced_table_schema <> k.table_schema) THEN
    'has a foreign key to another database, whose ids are not known here: drop it, and add it again afterwards'
    END AS refused FROM information_schema.tables
    WHERE table_schema = DATABASE() AND table_type NOT IN ('VIEW', 'SYSTEM VIEW', 'SEQUENCE') ORDER BY 2;

-- columns: every column, and why its values are not copied; the width at which a client shows a number is left out
SELECT NULL AS schema_name, table_name AS tab, column_name AS name, plain AS type, CONCAT_WS(' ', plain,
    IF(is_nullable = 'NO', 'NOT NULL', NULL), collation_name, NULLIF(generation_expression, '')) AS description, CASE
    WHEN bits > 0 OR data_type = 'decimal' AND numeric_scale = 0 THEN 'int'
    WHEN data_type LIKE '%char' OR data_type LIKE '%text' OR data_type IN ('enum', 'set') THEN 'text'
    WHEN data_type LIKE '%blob' OR data_type LIKE '%binary' OR data_type = 'bit' THEN 'bytes'
    WHEN data_type IN ('float', 'double') THEN 'float' WHEN data_type = 'json' THEN 'json' ELSE 'other' END AS kind,
    COALESCE((1 << LEAST(63, bits - 1 + (column_type LIKE '%unsigned%'))) - 1, REPEAT('9', LEAST(19, digits))) AS greatest,
    COALESCE(generation_expression, '') <> '' AS is_generated, extra LIKE '%auto_increment%' AS is_counter,
    collation_name AS collation, CASE
    WHEN data_type NOT IN (
    'tinyint', 'smallint', 'mediumint', 'int', 'bigint', 'decimal', 'float', 'double', 'bit', 'year', 'date', 'time',
    'datetime', 'timestamp', 'char', 'varchar', 'tinytext', 'text', 'mediumtext', 'longtext', 'enum', 'set',
    'json', 'binary', 'varbinary', 'tinyblob', 'blob', 'mediumblob', 'longblob', 'uuid', 'inet4', 'inet6',
    'geometry', 'point', 'linestring', 'polygon', 'multipoint', 'multilinestring', 'multipolygon'
    ) THEN CONCAT('is of the type ', data_type, ', which was never tried: change the type')
    WHEN column_default LIKE '%nextval(%' THEN
    'takes numbers of a sequence, which are not counted here: drop the default, and set it again afterwards, with the sequence above all numbers'
    WHEN extra LIKE '%INVISIBLE%' THEN 'is invisible: make it visible'
    END AS refusal FROM (SELECT *, REGEXP_REPLACE(column_type, '^([a-z]*int)[(][0-9]+[)]', '\\1') AS plain,
    CASE data_type WHEN 'tinyint' THEN 8 WHEN 'smallint' THEN 16 WHEN 'mediumint' THEN 24 WHEN 'int' THEN 32
    WHEN 'bigint' THEN 64 END AS bits, CASE WHEN data_type = 'year' THEN 4 WHEN numeric_scale = 0 THEN numeric_precision
    ELSE character_maximum_length END AS digits FROM information_schema.columns WHERE table_schema = DATABASE()) c
    ORDER BY table_name, ordinal_position;

-- keys: unique keys, and their columns
SELECT NULL AS schema_name, table_name AS tab, index_name = 'PRIMARY' AS is_primary,
    CONCAT('[', GROUP_CONCAT(JSON_QUOTE(column_name) ORDER BY seq_in_index), ']') AS columns
    FROM information_schema.statistics WHERE table_schema = DATABASE() AND non_unique = 0
    GROUP BY BINARY table_name, index_name ORDER BY table_name, index_name <> 'PRIMARY', index_name;

-- foreign_keys: foreign keys, and their columns
SELECT NULL AS schema_name, table_name AS tab, CONCAT('[', GROUP_CONCAT(JSON_QUOTE(column_name) ORDER BY ordinal_position), ']')
    AS columns, NULL AS parent_schema, referenced_table_name AS parent, '' AS timing,
    CONCAT('[', GROUP_CONCAT(JSON_QUOTE(referenced_column_name) ORDER BY ordinal_position), ']') AS parents
    FROM information_schema.key_column_usage
    WHERE table_schema = DATABASE() AND referenced_table_schema = table_schema
    GROUP BY BINARY table_name, constraint_name ORDER BY table_name, constraint_name;

-- triggers: why triggers that run at an INSERT are in the way
SELECT NULL AS schema_name, event_object_table AS tab, trigger_name AS name, '' AS mode, '' AS definition,
    CONCAT('the trigger ', trigger_name, ' would run at each row, and cannot be switched off: DROP TRIGGER `',
    trigger_name, '`, and create it again afterwards (SHOW CREATE TRIGGER)') AS refusal
    FROM information_schema.triggers WHERE event_object_schema = DATABASE() AND event_manipulation = 'INSERT'
    ORDER BY 3;

-- counters: the greatest number that each counter gave
SELECT NULL AS schema_name, t.table_name AS tab, c.column_name AS col, NULL AS name, t.auto_increment - 1 AS last
    FROM information_schema.tables t JOIN information_schema.columns c ON c.table_schema = t.table_schema
    AND BINARY c.table_name = t.table_name AND c.extra LIKE '%auto_increment%'
    WHERE t.table_schema = DATABASE() AND t.auto_increment IS NOT NULL ORDER BY 2;
