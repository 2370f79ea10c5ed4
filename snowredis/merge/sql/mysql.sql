-- Queries of the catalog of MariaDB and MySQL, by name.

-- tables: facts of tables, and why one is not on the list of what can be copied
SELECT table_name AS tab, '' AS what, CONCAT_WS(' ', table_type, engine) AS value, CASE
    WHEN table_type = 'SYSTEM VERSIONED' THEN
    'is system-versioned, and its history cannot be copied: DROP SYSTEM VERSIONING in both, or --exclude it'
    WHEN table_type <> 'BASE TABLE' THEN CONCAT('is a ', table_type, ': --exclude it')
    WHEN engine <> 'InnoDB' THEN CONCAT('is of the engine ', engine,
    ', which has no transactions: ALTER TABLE `', REPLACE(table_name, '`', '``'), '` ENGINE=InnoDB')
    WHEN EXISTS (SELECT 1 FROM information_schema.statistics s WHERE s.table_schema = t.table_schema
    AND s.table_name = t.table_name AND s.non_unique = 0 AND s.sub_part IS NOT NULL) THEN
    'has a unique key of the first characters of a text, which rows of both may break together: drop it, and add it again afterwards'
    END AS refusal FROM information_schema.tables t
    WHERE table_schema = COALESCE(:schema, DATABASE()) AND table_type NOT IN ('VIEW', 'SYSTEM VIEW', 'SEQUENCE');

-- columns: the same of columns
SELECT table_name AS tab, column_name AS what, CONCAT_WS(' ', column_type, IF(is_nullable = 'NO', 'NOT NULL',
    NULL), collation_name, NULLIF(generation_expression, '')) AS value, CASE
    WHEN data_type = 'float' THEN
    'is a FLOAT, which mariadb-dump writes with six digits: MODIFY it to DOUBLE in both, which changes no value'
    WHEN data_type NOT IN (
    'tinyint', 'smallint', 'mediumint', 'int', 'bigint', 'decimal', 'double', 'bit', 'year', 'date', 'time',
    'datetime', 'timestamp', 'char', 'varchar', 'tinytext', 'text', 'mediumtext', 'longtext', 'enum', 'set',
    'json', 'binary', 'varbinary', 'tinyblob', 'blob', 'mediumblob', 'longblob', 'uuid', 'inet4', 'inet6',
    'geometry', 'point', 'linestring', 'polygon', 'multipoint', 'multilinestring', 'multipolygon'
    ) THEN CONCAT('is of the type ', data_type,
    ', which was never tried: --exclude the table, or change the type')
    WHEN column_default LIKE '%nextval(%' THEN
    'takes numbers of a sequence, which are not counted here: drop the default, and set it again afterwards, with the sequence above all numbers'
    WHEN extra LIKE '%INVISIBLE%' THEN 'is invisible: make it visible'
    END AS refusal FROM information_schema.columns
    WHERE table_schema = COALESCE(:schema, DATABASE());

-- references_from_outside: foreign keys of other databases that lead here
SELECT table_schema AS other, table_name AS tab, constraint_name AS name
    FROM information_schema.key_column_usage WHERE referenced_table_schema = COALESCE(:schema, DATABASE()) AND
    table_schema <> referenced_table_schema;

-- triggers: triggers that run at an event
SELECT trigger_name AS name, event_object_table AS tab
    FROM information_schema.triggers WHERE event_object_schema = COALESCE(:schema, DATABASE()) AND
    event_manipulation = :event ORDER BY 1;

-- on_update: columns that the database changes at each UPDATE
SELECT column_name FROM information_schema.columns
    WHERE table_schema = COALESCE(:schema, DATABASE()) AND table_name = :table AND lower(extra) LIKE
    '%on update current_timestamp%';

-- counters: the next numbers of AUTO_INCREMENT
SELECT table_name AS tab, auto_increment AS next
    FROM information_schema.tables WHERE table_schema = COALESCE(:schema, DATABASE()) AND auto_increment IS NOT
    NULL ORDER BY 1;
