# A database in memory: rows in, an index, a join, half of the rows out.
exec sqlite3 :memory: "
create table item (id integer primary key, name text, kind integer);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 200000)
  insert into item select i, 'name ' || i, i % 997 from n;
create index by_kind on item (kind, name);
select count(*), sum(length(a.name)) from item a join item b on b.id = a.kind;
delete from item where id % 2;
select kind, group_concat(name) is not null from item group by kind order by count(*) desc limit 1;
"
