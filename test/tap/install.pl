# CREATE EXTENSION makes the schema itself, so nobody else's objects are in it, and gives away nothing,
# whatever the default privileges are.
use strict;
use warnings;

use StacksagaCluster;
use Test::More;

my $node = StacksagaCluster->new('node');
$node->init;
$node->start;
$node->safe_psql('postgres', 'CREATE ROLE mallory; CREATE DATABASE trap; CREATE DATABASE plain;
	CREATE DATABASE given');

# A schema that is there is refused, and nothing of the extension stays.
$node->safe_psql('postgres', 'GRANT CREATE ON DATABASE trap TO mallory');
$node->safe_psql('trap', q{
	SET ROLE mallory;
	CREATE SCHEMA stacksaga;
	CREATE FUNCTION stacksaga.same(text, name) RETURNS boolean LANGUAGE plpgsql AS $$
	BEGIN
		ALTER ROLE mallory SUPERUSER;
		RETURN true;
	EXCEPTION WHEN insufficient_privilege THEN RETURN true;
	END $$;
	CREATE OPERATOR stacksaga.= (LEFTARG = text, RIGHTARG = name, FUNCTION = stacksaga.same)});
$node->raises_sqlstate('trap', 'CREATE EXTENSION stacksaga', '42P06');
$node->raises_sqlstate('trap', 'CREATE EXTENSION stacksaga SCHEMA stacksaga', '0A000');
is($node->safe_psql('trap', q{
	SELECT (SELECT rolsuper FROM pg_roles WHERE rolname = 'mallory'),
	       (SELECT count(*) FROM pg_extension WHERE extname = 'stacksaga'),
	       (SELECT nspowner::regrole FROM pg_namespace WHERE nspname = 'stacksaga')}),
	'f|0|mallory', 'a schema that is there is not filled');
$node->safe_psql('trap', 'DROP SCHEMA stacksaga CASCADE; CREATE EXTENSION stacksaga');
$node->raises_sqlstate('trap',
	'SET ROLE mallory; CREATE FUNCTION stacksaga.f() RETURNS integer LANGUAGE sql AS $$SELECT 1$$',
	'42501');
is($node->safe_psql('trap', q{
	DROP EXTENSION stacksaga;
	SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'stacksaga%'}),
	'0', 'the schemas go with the extension');

# What anybody holds of what is in the schema, and of the schema; who owns it holds all.
my $privileges = q{
	SELECT o.class, o.name, a.grantee::regrole, a.privilege_type, a.is_grantable
	  FROM (SELECT 'schema' AS class, nspname::text AS name,
	               coalesce(nspacl, acldefault('n', nspowner)) AS acl, nspowner AS owner
	          FROM pg_namespace WHERE nspname IN ('stacksaga', 'stacksaga_internal')
	        UNION ALL SELECT 'relation', c.oid::regclass::text,
	               coalesce(relacl, acldefault(CASE relkind WHEN 'S' THEN 's' ELSE 'r' END::"char", relowner)),
	               relowner
	          FROM pg_class c WHERE relnamespace IN ('stacksaga'::regnamespace, 'stacksaga_internal'::regnamespace)
	           AND relkind IN ('r', 'p', 'v', 'S')
	        UNION ALL SELECT 'function', p.oid::regprocedure::text,
	               coalesce(proacl, acldefault('f', proowner)), proowner
	          FROM pg_proc p WHERE pronamespace IN ('stacksaga'::regnamespace, 'stacksaga_internal'::regnamespace)
	        UNION ALL SELECT 'type', t.oid::regtype::text,
	               coalesce(typacl, acldefault('T', typowner)), typowner
	          FROM pg_type t WHERE typnamespace = 'stacksaga'::regnamespace AND typelem = 0
	           AND (typrelid = 0 OR typrelid IN (SELECT oid FROM pg_class WHERE relkind = 'c'))) AS o,
	       aclexplode(o.acl) AS a
	 WHERE a.grantee <> o.owner ORDER BY 1, 2, 3, 4};
$node->safe_psql('plain', 'CREATE EXTENSION stacksaga');
my $plain = $node->safe_psql('plain', $privileges);
unlike($plain, qr/relation|schema/, 'by itself the extension gives away no table, view or sequence');
like($plain, qr/^function.stacksaga\.token\(text\).*EXECUTE/m, 'PUBLIC may call what is IMMUTABLE');

# Default privileges in favour of PUBLIC, of a role, and against PUBLIC make no difference.
foreach my $kind (qw(TABLES SEQUENCES FUNCTIONS TYPES SCHEMAS))
{
	$node->safe_psql('given', "ALTER DEFAULT PRIVILEGES GRANT ALL ON $kind TO mallory, PUBLIC");
	$node->safe_psql('given',
		"ALTER DEFAULT PRIVILEGES GRANT ALL ON $kind TO mallory WITH GRANT OPTION");
}
$node->safe_psql('given', 'CREATE EXTENSION stacksaga');
is($node->safe_psql('given', $privileges), $plain, 'what default privileges give is revoked');
$node->raises_sqlstate('given', 'SET ROLE mallory; TABLE stacksaga.saga', '42501');
$node->safe_psql('given', 'DROP EXTENSION stacksaga');
foreach my $kind (qw(TABLES SEQUENCES FUNCTIONS TYPES SCHEMAS))
{
	$node->safe_psql('given', "ALTER DEFAULT PRIVILEGES REVOKE ALL ON $kind FROM mallory, PUBLIC");
}
$node->safe_psql('given', 'CREATE EXTENSION stacksaga');
is($node->safe_psql('given', $privileges), $plain, 'what they take from PUBLIC is given');

done_testing();
