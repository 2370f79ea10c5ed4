"""Schemas as they are met: Sakila on MariaDB, a Pagila with partitions on PostgreSQL, a Django project, a game.

Written anew from the facts of the public schemas. Each has its ways to refer to a row that no constraint says, and a query
for each of its relations by natural keys, whose rows must be the same before a merge and after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class FieldSchema:
    """A schema with the rows of two databases.

    Attributes:
        kind: of the database.
        tables: statements that both databases begin with.
        rows: statements of each database; %s is its name.
        relations: queries that say by names which rows belong together.
        options: of the plan.
        together: tables whose rows are the same in both.
    """

    kind: str
    tables: str
    rows: tuple[str, str]
    relations: Sequence[str]
    options: dict[str, Sequence[str]] = field(default_factory=dict)
    together: Sequence[str] = ()


SAKILA = FieldSchema(
    kind="mariadb",
    tables="""
CREATE TABLE language (language_id TINYINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, name CHAR(20) NOT NULL,
    last_update TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP)
--
CREATE TABLE actor (actor_id SMALLINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, first_name VARCHAR(45) NOT NULL,
    last_name VARCHAR(45) NOT NULL, last_update TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
    KEY idx_actor_last_name (last_name))
--
CREATE TABLE film (film_id SMALLINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, title VARCHAR(128) NOT NULL,
    release_year YEAR, language_id TINYINT UNSIGNED NOT NULL, original_language_id TINYINT UNSIGNED,
    rental_rate DECIMAL(4,2) NOT NULL DEFAULT 4.99,
    rating ENUM('G','PG','PG-13','R','NC-17') DEFAULT 'G', special_features SET('Trailers','Commentaries'),
    last_update TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
    KEY idx_fk_language_id (language_id),
    CONSTRAINT fk_film_language FOREIGN KEY (language_id) REFERENCES language (language_id) ON UPDATE CASCADE,
    CONSTRAINT fk_film_original FOREIGN KEY (original_language_id) REFERENCES language (language_id) ON UPDATE CASCADE)
--
CREATE TABLE film_actor (actor_id SMALLINT UNSIGNED NOT NULL, film_id SMALLINT UNSIGNED NOT NULL,
    last_update TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP, PRIMARY KEY (actor_id, film_id),
    CONSTRAINT fk_fa_actor FOREIGN KEY (actor_id) REFERENCES actor (actor_id) ON UPDATE CASCADE,
    CONSTRAINT fk_fa_film FOREIGN KEY (film_id) REFERENCES film (film_id) ON UPDATE CASCADE)
--
CREATE TABLE film_text (film_id SMALLINT UNSIGNED NOT NULL PRIMARY KEY, title VARCHAR(255) NOT NULL, description TEXT,
    FULLTEXT KEY idx_title_description (title, description))
--
CREATE TABLE store (store_id TINYINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
    manager_staff_id TINYINT UNSIGNED NOT NULL UNIQUE, name VARCHAR(20))
--
CREATE TABLE staff (staff_id TINYINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, first_name VARCHAR(45) NOT NULL,
    store_id TINYINT UNSIGNED NOT NULL, picture BLOB,
    CONSTRAINT fk_staff_store FOREIGN KEY (store_id) REFERENCES store (store_id) ON UPDATE CASCADE)
--
ALTER TABLE store ADD CONSTRAINT fk_store_staff FOREIGN KEY (manager_staff_id) REFERENCES staff (staff_id) ON UPDATE CASCADE
--
CREATE TABLE inventory (inventory_id MEDIUMINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
    film_id SMALLINT UNSIGNED NOT NULL, store_id TINYINT UNSIGNED NOT NULL, place POINT,
    CONSTRAINT fk_inventory_film FOREIGN KEY (film_id) REFERENCES film (film_id) ON UPDATE CASCADE,
    CONSTRAINT fk_inventory_store FOREIGN KEY (store_id) REFERENCES store (store_id) ON UPDATE CASCADE)
--
CREATE TABLE rental (rental_id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, rental_date DATETIME NOT NULL,
    inventory_id MEDIUMINT UNSIGNED NOT NULL, staff_id TINYINT UNSIGNED NOT NULL, returned TIMESTAMP NULL,
    UNIQUE KEY (rental_date, inventory_id), KEY (inventory_id), KEY (staff_id),
    CONSTRAINT fk_rental_inventory FOREIGN KEY (inventory_id) REFERENCES inventory (inventory_id) ON UPDATE CASCADE,
    CONSTRAINT fk_rental_staff FOREIGN KEY (staff_id) REFERENCES staff (staff_id) ON UPDATE CASCADE)
--
CREATE TABLE payment (payment_id SMALLINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, rental_id INT,
    amount DECIMAL(5,2) NOT NULL, payment_date DATETIME NOT NULL,
    CONSTRAINT fk_payment_rental FOREIGN KEY (rental_id) REFERENCES rental (rental_id) ON DELETE SET NULL ON UPDATE CASCADE)
--
CREATE VIEW film_list AS SELECT f.film_id AS FID, f.title, a.first_name FROM film f
    LEFT JOIN film_actor fa ON fa.film_id = f.film_id LEFT JOIN actor a ON a.actor_id = fa.actor_id
""",
    rows=(
        *(
            f"""
SET foreign_key_checks = 0
--
INSERT INTO language VALUES {languages}
--
INSERT INTO actor (first_name, last_name, last_update) SELECT CONCAT('{name} actor ', seq), 'x',
    '2026-10-25 00:30:00' FROM seq_1_to_9
--
INSERT INTO film (title, release_year, language_id, original_language_id, rating, special_features)
    SELECT CONCAT('{name} film ', seq), 2000 + seq, {languages.count("(") - 1}, IF(seq % 3, NULL, 2), ELT(1 + seq % 5,
    'G', 'PG', 'PG-13', 'R', 'NC-17'), 'Trailers,Commentaries' FROM seq_1_to_12
--
INSERT INTO film_actor (actor_id, film_id) SELECT 1 + a.seq % 9, b.seq FROM seq_1_to_3 a, seq_1_to_12 b
--
INSERT INTO film_text SELECT film_id, title, CONCAT('of ', title) FROM film
--
INSERT INTO store VALUES (1, 1, '{name} one'), (2, 2, '{name} two')
--
INSERT INTO staff VALUES (1, '{name} Mike', 1, x'00FF10'), (2, '{name} Jon', 2, NULL)
--
INSERT INTO inventory SELECT seq, 1 + seq % 12, 1 + seq % 2, POINT(seq, 1) FROM seq_1_to_20
--
INSERT INTO rental SELECT seq, '2026-03-29 02:30:00' + INTERVAL seq MINUTE, 1 + seq % 20, 1 + seq % 2,
    IF(seq % 2, '2026-07-01 12:00:00', NULL) FROM seq_1_to_50
--
INSERT INTO payment SELECT seq, seq, seq / 7, '2026-01-01' FROM seq_1_to_50
"""
            for name, languages in (
                ("a", "(1, 'English', '2026-01-01'), (2, 'Italian', '2026-01-01')"),
                ("b", "(1, 'Italian', '2026-01-01'), (2, 'English', '2026-01-01'), (3, 'Japanese', '2026-01-01')"),
            )
        ),
    ),  # type: ignore[arg-type]
    relations=(
        "SELECT f.title, f.release_year, f.rating, f.special_features, l.name, o.name, UNIX_TIMESTAMP(f.last_update) > 0 "
        "FROM film f JOIN language l USING (language_id) LEFT JOIN language o ON o.language_id = original_language_id",
        "SELECT f.title, a.first_name FROM film_actor JOIN film f USING (film_id) JOIN actor a USING (actor_id)",
        "SELECT f.title, t.title, t.description FROM film_text t LEFT JOIN film f USING (film_id)",
        "SELECT s.name, m.first_name, HEX(m.picture), o.name FROM store s JOIN staff m ON m.staff_id = manager_staff_id "
        "JOIN store o ON o.store_id = m.store_id",
        "SELECT f.title, r.rental_date, UNIX_TIMESTAMP(r.returned), s.first_name, p.amount, ST_AsText(i.place) FROM rental r "
        "JOIN inventory i USING (inventory_id) JOIN film f USING (film_id) JOIN staff s USING (staff_id) "
        "LEFT JOIN payment p USING (rental_id)",
        "SELECT first_name, UNIX_TIMESTAMP(last_update) FROM actor",
        "SELECT title, first_name FROM film_list",
    ),
    options={"matched": ["language=name"], "references": ["film_text.film_id=film.film_id"]},
    together=("language",),
)

PAGILA = FieldSchema(
    kind="postgresql",
    tables="""
CREATE DOMAIN year AS integer CHECK (VALUE >= 1901)
--
CREATE TYPE mpaa_rating AS ENUM ('G', 'PG', 'R')
--
CREATE SEQUENCE customer_customer_id_seq
--
CREATE TABLE customer (customer_id integer DEFAULT nextval('customer_customer_id_seq') PRIMARY KEY, name text NOT NULL,
    born year, rating mpaa_rating, data jsonb, active boolean GENERATED ALWAYS AS (born > 1950) STORED,
    last_update timestamptz DEFAULT now())
--
CREATE TABLE rental (rental_id integer GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    customer_id integer NOT NULL REFERENCES customer ON UPDATE CASCADE ON DELETE RESTRICT, period tstzrange NOT NULL,
    note text)
--
CREATE TABLE payment (payment_id bigint GENERATED BY DEFAULT AS IDENTITY, customer_id integer NOT NULL REFERENCES customer,
    rental_id integer NOT NULL REFERENCES rental DEFERRABLE INITIALLY DEFERRED, amount numeric(5,2),
    payment_date timestamptz NOT NULL, PRIMARY KEY (payment_date, payment_id)) PARTITION BY RANGE (payment_date)
--
CREATE TABLE payment_p2026_01 PARTITION OF payment FOR VALUES FROM ('2026-01-01') TO ('2026-02-01')
--
CREATE TABLE payment_rest PARTITION OF payment DEFAULT PARTITION BY RANGE (payment_date)
--
CREATE TABLE payment_rest_all PARTITION OF payment_rest DEFAULT
--
CREATE FUNCTION last_updated() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN NEW.last_update = CURRENT_TIMESTAMP; RETURN NEW; END $$
--
CREATE TRIGGER last_updated BEFORE UPDATE ON customer FOR EACH ROW EXECUTE FUNCTION last_updated()
--
CREATE MATERIALIZED VIEW spent AS SELECT customer_id, sum(amount) AS total FROM payment GROUP BY 1
--
CREATE INDEX ON payment (rental_id)
""",
    rows=(
        *(
            f"""
INSERT INTO customer (name, born, rating, data, last_update) SELECT '{name} customer ' || n, 1940 + n, 'PG',
    jsonb_build_object('n', n, 'text', '…'), '2026-03-29 01:30+00'::timestamptz + n * interval '10 min'
    FROM generate_series(1, {count}) n
--
INSERT INTO rental (customer_id, period, note) SELECT 1 + n % {count}, tstzrange('2026-01-01'::timestamptz + n * interval '1 day',
    NULL), '{name} rental ' || n FROM generate_series(1, 60) n
--
INSERT INTO payment (customer_id, rental_id, amount, payment_date) SELECT customer_id, rental_id, rental_id / 7.0,
    '2026-01-01 00:00+00'::timestamptz + rental_id * interval '1 day' FROM rental
--
REFRESH MATERIALIZED VIEW spent
"""
            for name, count in (("a", 20), ("b", 30))
        ),
    ),  # type: ignore[arg-type]
    relations=(
        "SELECT name, born, rating::text, data::text, active, extract(epoch FROM last_update) FROM customer",
        "SELECT r.note, c.name, lower(r.period) AT TIME ZONE 'UTC', p.amount, p.payment_date AT TIME ZONE 'UTC', o.name "
        "FROM rental r JOIN customer c USING (customer_id) JOIN payment p USING (rental_id) "
        "JOIN customer o ON o.customer_id = p.customer_id",
    ),
    options={"ids": ["payment.payment_id"], "independent": ["customer.data"]},
)

GAME = FieldSchema(
    kind="mariadb",
    tables="""
CREATE TABLE account (id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, name VARCHAR(30) COLLATE utf8mb4_bin NOT NULL)
--
CREATE TABLE role (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, account_id BIGINT UNSIGNED NOT NULL, name VARCHAR(30),
    guild_id INT DEFAULT NULL, KEY (account_id), KEY (guild_id))
--
CREATE TABLE guild (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, name VARCHAR(30), leader_role_id BIGINT NOT NULL)
--
CREATE TABLE player_stats (role_id BIGINT NOT NULL PRIMARY KEY, level INT NOT NULL, at TIMESTAMP NOT NULL)
--
CREATE TABLE item (owner_id BIGINT NOT NULL, owner_type ENUM('Role', 'Guild') NOT NULL, slot INT NOT NULL,
    name VARCHAR(30), PRIMARY KEY (owner_type, owner_id, slot))
--
CREATE TABLE server_config (name VARCHAR(20) PRIMARY KEY, value JSON)
""",
    rows=(
        *(
            f"""
INSERT INTO account (name) SELECT CONCAT('{name} account ', seq) FROM seq_1_to_15
--
INSERT INTO role (account_id, name, guild_id) SELECT 1 + seq % 15, CONCAT('{name} role ', seq), 1 + seq % 4 FROM seq_1_to_40
--
INSERT INTO guild (name, leader_role_id) SELECT CONCAT('{name} guild ', seq), seq * 3 FROM seq_1_to_4
--
INSERT INTO player_stats SELECT id, id * 2, FROM_UNIXTIME(1774747800 + id * 600) FROM role WHERE id <= 25
--
INSERT INTO item SELECT 1 + seq % 40, 'Role', seq, CONCAT('{name} item ', seq) FROM seq_1_to_90
--
INSERT INTO item SELECT 1 + seq % 4, 'Guild', seq, CONCAT('{name} guild item ', seq) FROM seq_1_to_9
--
INSERT INTO server_config VALUES ('{name} rate', '{{"x": 1.50}}')
"""
            for name in "ab"
        ),
    ),  # type: ignore[arg-type]
    relations=(
        "SELECT r.name, a.name, g.name FROM role r LEFT JOIN account a ON a.id = account_id LEFT JOIN guild g ON g.id = guild_id",
        "SELECT g.name, r.name FROM guild g LEFT JOIN role r ON r.id = leader_role_id",
        "SELECT r.name, s.level, UNIX_TIMESTAMP(s.at) FROM player_stats s LEFT JOIN role r ON r.id = role_id",
        "SELECT i.name, i.slot, r.name FROM item i LEFT JOIN role r ON r.id = owner_id WHERE owner_type = 'Role'",
        "SELECT i.name, i.slot, g.name FROM item i LEFT JOIN guild g ON g.id = owner_id WHERE owner_type = 'Guild'",
        "SELECT name, value FROM server_config",
    ),
    options={
        "references": [
            "role.account_id=account.id",
            "role.guild_id=guild.id",
            "guild.leader_role_id=role.id",
            "player_stats.role_id=role.id",
            "item.owner_id=role.id WHERE owner_type=Role",
            "item.owner_id=guild.id WHERE owner_type=Guild",
        ],
        "independent": ["item.slot"],
    },
)
