-- Queries of the catalog of PostgreSQL, by name.

-- tables: every table with rows of its own, and why it is not copied
SELECT NULLIF(n.nspname, current_schema()) AS schema_name, c.relname AS tab,
    quote_ident(n.nspname) || '.' || quote_ident(c.relname) AS sql, '' AS refusal,
    CASE WHEN count(*) OVER (PARTITION BY concat(NULLIF(n.nspname, current_schema()) || '.', c.relname)) > 1 THEN
    'is, with its schema and a dot, called as another table: rename one of them'
    WHEN NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped
    AND attgenerated = '') THEN 'has no column that can be written: add one'
    WHEN EXISTS (SELECT FROM pg_class p WHERE p.relispartition AND p.relkind = 'f' AND pg_partition_root(p.oid)
    = c.oid) THEN 'has a partition that is a foreign table: detach it'
    WHEN EXISTS (SELECT FROM pg_inherits JOIN pg_class h ON h.oid = inhrelid
    WHERE NOT h.relispartition AND c.oid IN (inhparent, inhrelid)) THEN
    'is part of an inheritance (INHERITS), so its rows are in two tables: make it a table of its own'
    WHEN EXISTS (SELECT FROM pg_rewrite WHERE ev_class = c.oid) THEN
    'has a rule, which may change what an INSERT does: drop the rule, and create it again afterwards'
    WHEN c.relrowsecurity AND NOT pg_has_role(c.relowner, 'USAGE') THEN
    'has row security, which may hide rows from this user: connect as its owner'
    WHEN EXISTS (SELECT FROM pg_constraint x WHERE x.conrelid = c.oid AND x.contype = 'x') THEN
    'has an EXCLUDE constraint, which rows of both may break together: drop it, and add it again afterwards'
    WHEN EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND to_jsonb(i)->>'indnullsnotdistinct' = 'true') THEN
    'has a key with NULLS NOT DISTINCT, which rows of both may break together: drop it, and add it again afterwards'
    END AS refused FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND n.nspname !~ '^pg_|^information_schema$'
    AND NOT EXISTS (SELECT FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = c.oid AND deptype = 'e')
    ORDER BY 1 NULLS FIRST, 2;

-- columns: every column, and why its values are not copied; a domain or an array is of a type, which may be a domain or an array again
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
    AS details, (array_agg(t.typname ORDER BY level DESC))[1]::text AS base,
    (array_agg(t.oid ORDER BY level) FILTER (WHERE t.typtype <> 'd'))[1] AS plain, max(t.typtypmod) AS modifier, bool_or(t.typtype = 'e' OR
    t.typname IN (
    'bool', 'int2', 'int4', 'int8', 'float4', 'float8', 'numeric', 'text', 'varchar', 'bpchar', 'char', 'bytea',
    'citext', 'hstore', 'ltree', 'tsvector', 'tsquery', 'date', 'time', 'timetz', 'timestamp', 'timestamptz',
    'interval', 'uuid', 'json', 'jsonb', 'xml', 'bit', 'varbit', 'inet', 'cidr', 'macaddr', 'macaddr8', 'point',
    'line', 'lseg', 'box', 'path', 'polygon', 'circle', 'int4range', 'int8range', 'numrange', 'tsrange',
    'tstzrange', 'daterange', 'int4multirange', 'int8multirange', 'nummultirange', 'tsmultirange',
    'tstzmultirange', 'datemultirange'
    )) AS is_known FROM deep
    JOIN pg_type t ON t.oid = type GROUP BY 1, 2) SELECT NULLIF(n.nspname, current_schema()) AS schema_name,
    c.relname AS tab, a.attname::text AS name, format_type(plain, size) AS type, concat_ws(' ', format_type(a.atttypid, a.atttypmod),
    CASE WHEN a.attnotnull THEN 'NOT NULL' END, NULLIF(l.collname, 'default'), CASE WHEN a.attgenerated <> ''
    THEN 'AS ' || pg_get_expr(d.adbin, d.adrelid) END, details) AS description, CASE
    WHEN b.typname IN ('int2', 'int4', 'int8') OR b.typname = 'numeric' AND (size = -1 OR (size - 4) & 2047 = 0) THEN 'int'
    WHEN b.typname IN ('text', 'varchar', 'bpchar', 'char', 'citext') THEN 'text' WHEN b.typname = 'bytea' THEN 'bytes'
    WHEN b.typname IN ('float4', 'float8') THEN 'float' WHEN b.typname IN ('json', 'jsonb') THEN 'json'
    WHEN b.typcategory = 'A' THEN 'array' ELSE 'other' END AS kind, CASE b.typname WHEN 'int2' THEN '32767'
    WHEN 'int4' THEN '2147483647' WHEN 'numeric' THEN repeat('9', least(19, (size - 4) >> 16))
    WHEN 'varchar' THEN repeat('9', least(19, size - 4)) WHEN 'bpchar' THEN repeat('9', least(19, size - 4)) END AS greatest,
    a.attgenerated <> '' AS is_generated,
    a.attidentity <> '' OR pg_get_expr(d.adbin, d.adrelid) ~* 'nextval' AS is_counter, l.collname AS collation, CASE
    WHEN base IN ('oid', 'regclass', 'lo') THEN
    'is an oid, such as of a large object, which is not in the table: copy what it leads to, and make it a column of bytea or text'
    WHEN NOT is_known THEN 'is of the type ' || base ||
    ', which was never tried: change the type'
    WHEN a.attgenerated = '' AND (pg_get_expr(d.adbin, d.adrelid) ~* 'nextval' AND
    to_regclass(substring(pg_get_expr(d.adbin, d.adrelid) FROM 'nextval\(\(''(.*)''::text\)::regclass\)')) IS NULL
    AND NOT EXISTS (SELECT FROM pg_depend p JOIN pg_class q ON q.oid = p.refobjid
    WHERE p.refclassid = 'pg_class'::regclass AND p.objid = d.oid AND q.relkind = 'S') OR EXISTS (SELECT
    FROM pg_depend p JOIN pg_proc f ON f.oid = p.refobjid
    WHERE p.refclassid = 'pg_proc'::regclass AND p.objid = d.oid AND p.classid = 'pg_attrdef'::regclass AND
    f.prosrc ~* 'nextval')) THEN
    'takes numbers of a sequence in a way that the catalog does not tell: drop the default, and set it again afterwards, with the sequence above all numbers'
    END AS refusal FROM types JOIN pg_attribute a USING (attrelid, attnum)
    JOIN pg_class c ON c.oid = attrelid JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_type b ON b.oid = plain
    CROSS JOIN LATERAL (SELECT greatest(a.atttypmod, modifier) AS size) s
    LEFT JOIN pg_collation l ON l.oid = a.attcollation
    LEFT JOIN pg_attrdef d ON d.adrelid = attrelid AND d.adnum = a.attnum
    WHERE n.nspname !~ '^pg_|^information_schema$' ORDER BY 1 NULLS FIRST, 2, a.attnum;

-- keys: unique keys without a condition or an expression, and their columns
SELECT NULLIF(n.nspname, current_schema()) AS schema_name, c.relname AS tab, i.indisprimary AS is_primary,
    json_agg(a.attname ORDER BY k.at)::text AS columns FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
    JOIN pg_class x ON x.oid = i.indexrelid JOIN pg_namespace n ON n.oid = c.relnamespace
    CROSS JOIN unnest(i.indkey::int2[]) WITH ORDINALITY k (num, at)
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.num
    WHERE i.indisunique AND i.indexprs IS NULL AND i.indpred IS NULL AND k.at <= i.indnkeyatts
    AND NOT c.relispartition AND n.nspname !~ '^pg_|^information_schema$'
    GROUP BY 1, 2, 3, x.relname ORDER BY 1, 2, 3 DESC, x.relname;

-- foreign_keys: foreign keys, and their columns; those of a partition count for its partitioned table
SELECT NULLIF(n.nspname, current_schema()) AS schema_name, c.relname AS tab,
    json_agg(a.attname ORDER BY u.at)::text AS columns, NULLIF(pn.nspname, current_schema()) AS parent_schema,
    p.relname AS parent, json_agg(b.attname ORDER BY u.at)::text AS parents, k.conrelid::regclass || ' ALTER CONSTRAINT ' || quote_ident(k.conname) || '|' || CASE
    WHEN k.condeferred THEN 'DEFERRABLE INITIALLY DEFERRED' WHEN k.condeferrable THEN
    'DEFERRABLE INITIALLY IMMEDIATE' ELSE 'NOT DEFERRABLE' END AS timing
    FROM pg_constraint k
    JOIN pg_class c ON c.oid = COALESCE(pg_partition_root(k.conrelid), k.conrelid)
    JOIN pg_class p ON p.oid = COALESCE(pg_partition_root(k.confrelid), k.confrelid)
    JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_namespace pn ON pn.oid = p.relnamespace
    CROSS JOIN unnest(k.conkey, k.confkey) WITH ORDINALITY u (mine, its, at)
    JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = u.mine
    JOIN pg_attribute b ON b.attrelid = k.confrelid AND b.attnum = u.its
    WHERE k.contype = 'f' AND k.conparentid = 0
    GROUP BY n.oid, c.oid, k.oid, pn.oid, p.oid ORDER BY 1, 2, k.conname || k.oid;

-- triggers: triggers that are on, of partitions too
SELECT NULLIF(n.nspname, current_schema()) AS schema_name, r.relname AS tab, t.tgname AS name, t.tgenabled::text AS mode,
    t.tgrelid::regclass::text AS definition, NULL AS refusal FROM pg_trigger t
    JOIN pg_class r ON r.oid = COALESCE(pg_partition_root(t.tgrelid), t.tgrelid)
    JOIN pg_namespace n ON n.oid = r.relnamespace
    WHERE NOT t.tgisinternal AND t.tgparentid = 0 AND t.tgenabled IN ('O', 'A') ORDER BY 5, 3;

-- counters: the greatest number that each sequence gave, and the columns that it numbers
SELECT NULLIF(n.nspname, current_schema()) AS schema_name, t.relname AS tab, a.attname AS col,
    s.oid::regclass::text AS name, pg_sequence_last_value(s.oid) AS last FROM pg_class s LEFT
    JOIN (SELECT objid AS seq, refobjid AS tab, refobjsubid AS col
    FROM pg_depend WHERE classid = 'pg_class'::regclass AND refclassid = 'pg_class'::regclass AND deptype IN
    ('a', 'i') AND refobjsubid > 0 UNION SELECT d.refobjid, f.adrelid, f.adnum
    FROM pg_depend d JOIN pg_attrdef f ON d.classid = 'pg_attrdef'::regclass AND d.objid = f.oid AND
    d.refclassid = 'pg_class'::regclass UNION SELECT
    to_regclass(substring(pg_get_expr(adbin, adrelid) FROM 'nextval\(\(''(.*)''::text\)::regclass\)')), adrelid, adnum
    FROM pg_attrdef) u ON u.seq = s.oid
    LEFT JOIN pg_class t ON t.oid = COALESCE(pg_partition_root(u.tab), u.tab) LEFT
    JOIN pg_namespace n ON n.oid = t.relnamespace
    LEFT JOIN pg_attribute a ON a.attrelid = u.tab AND a.attnum = u.col
    WHERE s.relkind = 'S' ORDER BY 4, 1, 2, 3;
