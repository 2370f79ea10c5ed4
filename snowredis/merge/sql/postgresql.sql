-- Queries of the catalog of PostgreSQL, by name.

-- tables: facts of tables, and why one is not on the list of what can be copied
SELECT NULLIF(n.nspname, current_schema()) AS schema, c.relname AS tab, '' AS what, c.relkind::text AS value,
    CASE WHEN c.relkind = 'f' THEN 'is a foreign table: --exclude it'
    WHEN EXISTS (SELECT FROM pg_class p WHERE p.relispartition AND p.relkind = 'f' AND pg_partition_root(p.oid)
    = c.oid) THEN 'has a partition that is a foreign table: detach it'
    WHEN EXISTS (SELECT FROM pg_inherits JOIN pg_class h ON h.oid = inhrelid
    WHERE NOT h.relispartition AND c.oid IN (inhparent, inhrelid)) THEN
    'is part of an inheritance (INHERITS), so its rows are in two tables: make it a table of its own'
    WHEN EXISTS (SELECT FROM pg_rewrite WHERE ev_class = c.oid) THEN
    'has a rule, which may change what an UPDATE or an INSERT does: drop the rule, and create it again afterwards'
    WHEN EXISTS (SELECT FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = c.oid AND deptype = 'e')
    THEN 'belongs to an extension: --exclude it'
    WHEN EXISTS (SELECT FROM pg_constraint x WHERE x.conrelid = c.oid AND x.contype = 'x') THEN
    'has an EXCLUDE constraint, which rows of both may break together: drop it, and add it again afterwards'
    WHEN EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND to_jsonb(i)->>'indnullsnotdistinct' = 'true') THEN
    'has a key with NULLS NOT DISTINCT, which rows of both may break together: drop it, and add it again afterwards'
    END AS refusal FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p', 'f') AND NOT c.relispartition AND n.nspname !~ '^pg_|^information_schema$';

-- columns: the same of columns; a domain or an array is of a type, which may be a domain or an array again
WITH RECURSIVE deep AS (SELECT a.attrelid, a.attnum, a.atttypid AS type, 0 AS level
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
    WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND a.attnum > 0 AND NOT a.attisdropped
    UNION ALL SELECT attrelid, attnum, CASE t.typtype
    WHEN 'd' THEN t.typbasetype ELSE t.typelem END, level + 1
    FROM deep JOIN pg_type t ON t.oid = type WHERE t.typtype = 'd' OR t.typlen = -1 AND t.typelem <> 0), types
    AS (SELECT attrelid, attnum, string_agg(concat_ws(' ', t.typname, CASE
    WHEN t.typnotnull THEN 'NOT NULL' END, (SELECT string_agg(pg_get_constraintdef(k.oid), ' ' ORDER BY 1)
    FROM pg_constraint k WHERE k.contypid = t.oid), (SELECT string_agg(enumlabel, ', ' ORDER BY enumsortorder)
    FROM pg_enum WHERE enumtypid = t.oid)), ' of ' ORDER BY level) FILTER (WHERE t.typtype <> 'b' OR level > 0)
    AS details, (array_agg(t.typname ORDER BY level DESC))[1]::text AS base, bool_or(t.typtype = 'e' OR
    t.typname IN (
    'bool', 'int2', 'int4', 'int8', 'float4', 'float8', 'numeric', 'text', 'varchar', 'bpchar', 'char', 'bytea',
    'citext', 'hstore', 'ltree', 'tsvector', 'tsquery', 'date', 'time', 'timetz', 'timestamp', 'timestamptz',
    'interval', 'uuid', 'json', 'jsonb', 'xml', 'bit', 'varbit', 'inet', 'cidr', 'macaddr', 'macaddr8', 'point',
    'line', 'lseg', 'box', 'path', 'polygon', 'circle', 'int4range', 'int8range', 'numrange', 'tsrange',
    'tstzrange', 'daterange', 'int4multirange', 'int8multirange', 'nummultirange', 'tsmultirange',
    'tstzmultirange', 'datemultirange'
    )) AS is_known FROM deep
    JOIN pg_type t ON t.oid = type GROUP BY 1, 2) SELECT NULLIF(n.nspname, current_schema()) AS schema,
    c.relname AS tab, a.attname::text AS what, concat_ws(' ', format_type(a.atttypid, a.atttypmod), CASE
    WHEN a.attnotnull THEN 'NOT NULL' END, NULLIF(l.collname, 'default'), CASE
    WHEN a.attgenerated <> '' THEN 'AS ' || pg_get_expr(d.adbin, d.adrelid) END, details) AS value, CASE
    WHEN base IN ('oid', 'regclass', 'lo') THEN
    'is an oid, such as of a large object, which is not in the table: copy what it leads to, and make it a column of bytea or text'
    WHEN NOT is_known THEN 'is of the type ' || base ||
    ', which was never tried: --exclude the table, or change the type'
    WHEN a.attgenerated = '' AND (pg_get_expr(d.adbin, d.adrelid) ~* 'nextval' AND NOT EXISTS (SELECT
    FROM pg_depend p JOIN pg_class s ON s.oid = p.refobjid
    WHERE p.refclassid = 'pg_class'::regclass AND p.objid = d.oid AND s.relkind = 'S') OR EXISTS (SELECT
    FROM pg_depend p JOIN pg_proc f ON f.oid = p.refobjid
    WHERE p.refclassid = 'pg_proc'::regclass AND p.objid = d.oid AND p.classid = 'pg_attrdef'::regclass AND
    f.prosrc ~* 'nextval')) THEN
    'takes numbers of a sequence in a way that the catalog does not tell: drop the default, and set it again afterwards, with the sequence above all numbers'
    END AS refusal FROM types JOIN pg_attribute a USING (attrelid, attnum)
    JOIN pg_class c ON c.oid = attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
    LEFT JOIN pg_collation l ON l.oid = a.attcollation
    LEFT JOIN pg_attrdef d ON d.adrelid = attrelid AND d.adnum = a.attnum
    WHERE n.nspname !~ '^pg_|^information_schema$';

-- partitions: the partitioned table, the outermost one, of every partition
SELECT NULLIF(n.nspname, current_schema()), c.relname, NULLIF(rn.nspname, current_schema()), r.relname
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_class r ON r.oid = pg_partition_root(c.oid)
    JOIN pg_namespace rn ON rn.oid = r.relnamespace
    WHERE c.relispartition AND c.relkind IN ('r', 'p');

-- partition_conditions: the whole condition of each partition that holds rows itself
SELECT pg_get_partition_constraintdef(oid) AS condition
    FROM pg_class WHERE relispartition AND relkind = 'r' AND pg_partition_root(oid) = to_regclass(:root)
    AND pg_get_partition_constraintdef(oid) IS NOT NULL;

-- with_partitions: tables and their partitions
SELECT oid FROM pg_class WHERE oid IN (SELECT to_regclass(n)
    FROM unnest(CAST(:names AS text[])) n) OR relispartition AND pg_partition_root(oid) IN (SELECT
    to_regclass(n) FROM unnest(CAST(:names AS text[])) n);

-- constraints: constraints of partitions follow those of the partitioned table, unless a partition has its own
SELECT conrelid::regclass::text AS relation, conname AS name
    FROM pg_constraint WHERE contype = 'f' AND conparentid = 0 AND NOT condeferrable AND (conrelid = ANY(:oids)
    OR confrelid = ANY(:oids)) ORDER BY 1, 2;

-- triggers: triggers that run at an UPDATE
SELECT tgrelid::regclass::text AS relation, tgname AS name, tgenabled AS mode
    FROM pg_trigger WHERE NOT tgisinternal AND tgenabled IN ('O', 'A') AND tgrelid = ANY(:oids) ORDER BY 1, 2;

-- identities: columns that are always generated
SELECT attrelid::regclass::text AS relation, attname AS name
    FROM pg_attribute WHERE attidentity = 'a' AND NOT attisdropped AND attrelid = ANY(:oids) ORDER BY 1, 2;

-- sequences: sequences that a column owns (serial, identity), those that its default uses, and the others
SELECT s.oid::regclass::text AS seq, q.seqincrement AS step, NULLIF(n.nspname, current_schema()) AS schema,
    t.relname AS tab, a.attname AS col FROM pg_class s
    JOIN pg_sequence q ON q.seqrelid = s.oid LEFT
    JOIN (SELECT objid AS seq, refobjid AS tab, refobjsubid AS col
    FROM pg_depend WHERE classid = 'pg_class'::regclass AND refclassid = 'pg_class'::regclass AND deptype IN
    ('a', 'i') AND refobjsubid > 0 UNION SELECT d.refobjid, f.adrelid, f.adnum
    FROM pg_depend d JOIN pg_attrdef f ON d.classid = 'pg_attrdef'::regclass AND d.objid = f.oid AND
    d.refclassid = 'pg_class'::regclass) u ON u.seq = s.oid
    LEFT JOIN pg_class t ON t.oid = u.tab LEFT
    JOIN pg_namespace n ON n.oid = t.relnamespace
    LEFT JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = u.col
    WHERE s.relkind = 'S' ORDER BY 1, 3, 4, 5;
