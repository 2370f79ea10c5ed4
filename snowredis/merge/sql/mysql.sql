-- Queries of the catalog of MariaDB and MySQL, by name.

-- tables: every table; "refusal": why the first database cannot hold its rows in one transaction, "refused": why it is not copied
SELECT NULL AS schema_name, table_name AS tab, CONCAT('`', REPLACE(table_name, '`', '``'), '`') AS `sql`,
    IF(engine NOT IN ('InnoDB', 'ROCKSDB'), CONCAT('is of the engine ', engine,
    ', which has no transactions: ALTER TABLE `', REPLACE(table_name, '`', '``'), '` ENGINE=InnoDB, ROW_FORMAT=DEFAULT'), '') AS refusal,
    CASE WHEN table_type = 'SYSTEM VERSIONED' THEN
    'is system-versioned, and its history cannot be copied: DROP SYSTEM VERSIONING in both'
    WHEN table_type <> 'BASE TABLE' THEN CONCAT('is a ', table_type)
    WHEN EXISTS (SELECT 1 FROM information_schema.key_column_usage k WHERE k.table_schema = t.table_schema
    AND k.table_name = t.table_name AND k.referenced_table_schema <> k.table_schema) THEN
    'has a foreign key to another database, whose ids are not known here: drop it, and add it again afterwards'
    END AS refused FROM information_schema.tables t
    WHERE table_schema = DATABASE() AND table_type NOT IN ('VIEW', 'SYSTEM VIEW', 'SEQUENCE') ORDER BY 2;

-- columns: every column, and why its values are not copied
SELECT NULL AS schema_name, table_name AS tab, column_name AS col, column_type AS type, CONCAT_WS(' ',
    column_type, IF(is_nullable = 'NO', 'NOT NULL', NULL), collation_name, NULLIF(generation_expression, '')) AS description,
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
    END AS refusal FROM information_schema.columns
    WHERE table_schema = DATABASE() ORDER BY table_name, ordinal_position;

-- keys: columns of unique keys
SELECT NULL AS schema_name, table_name AS tab, index_name AS name, column_name AS col, index_name = 'PRIMARY' AS is_primary
    FROM information_schema.statistics WHERE table_schema = DATABASE() AND non_unique = 0
    ORDER BY table_name, index_name <> 'PRIMARY', index_name, seq_in_index;

-- foreign_keys: columns of foreign keys
SELECT NULL AS schema_name, table_name AS tab, constraint_name AS name, column_name AS col, NULL AS parent_schema,
    referenced_table_name AS parent, referenced_column_name AS parent_col, '' AS timing
    FROM information_schema.key_column_usage
    WHERE table_schema = DATABASE() AND referenced_table_schema = table_schema
    ORDER BY table_name, constraint_name, ordinal_position;

-- triggers: triggers that run at an INSERT
SELECT NULL AS schema_name, event_object_table AS tab, trigger_name AS name, '' AS mode, '' AS definition
    FROM information_schema.triggers WHERE event_object_schema = DATABASE() AND event_manipulation = 'INSERT'
    ORDER BY 3;

-- counters: the greatest number that each counter gave
SELECT NULL AS schema_name, t.table_name AS tab, c.column_name AS col, NULL AS name, t.auto_increment - 1 AS last
    FROM information_schema.tables t JOIN information_schema.columns c ON c.table_schema = t.table_schema
    AND c.table_name = t.table_name AND c.extra LIKE '%auto_increment%'
    WHERE t.table_schema = DATABASE() AND t.auto_increment IS NOT NULL ORDER BY 2;
