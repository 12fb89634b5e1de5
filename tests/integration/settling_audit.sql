create table audit (what text not null, dataset_id bigint, n bigint, run_id text);

create function audit_rows() returns trigger language plpgsql as $$ begin
  if old.state not in ('completed', 'failed', 'cancelled') and new.state in ('completed', 'failed', 'cancelled') then
    insert into audit values ('row ended', new.dataset_id, new.position, null);
    if old.state = 'waiting' and new.state <> 'cancelled' then
      insert into audit values ('ENDED WHILE IT WAITED', new.dataset_id, new.position, null);
    end if;
  elsif old.state in ('completed', 'failed', 'cancelled') and new.state <> old.state then
    insert into audit values ('ROW REWRITTEN', new.dataset_id, new.position, null);
  end if;
  return new;
end $$;
create trigger audit_rows after update on run_rows for each row execute function audit_rows();

create function audit_pages() returns trigger language plpgsql as $$ begin
  if old.state = 'settled' then
    insert into audit values ('PAGE AFTER SETTLING', new.dataset_id, new.page, null);
  elsif new.state = 'settled' then
    insert into audit values ('page settled', new.dataset_id, new.page, null);
  elsif new.state = 'out' and old.state = 'seeded' then
    insert into audit values ('page cut', new.dataset_id, new.page, null);
  end if;
  return new;
end $$;
create trigger audit_pages after update on pages for each row execute function audit_pages();

create function audit_datasets() returns trigger language plpgsql as $$ begin
  if new.next_page > old.next_page and new.next_page - new.pages_settled - new.pages_parked > 4 then
    insert into audit values ('WINDOW PASSED', new.dataset_id, new.next_page, null);
  end if;
  if new.pages_parked < 0 then
    insert into audit values ('PARKED BELOW ZERO', new.dataset_id, new.pages_parked, null);
  end if;
  if new.pages_settled > new.next_page and new.state in ('seeding', 'running') then
    insert into audit values ('SETTLED BEFORE CLAIMED', new.dataset_id, new.pages_settled, null);
  end if;
  if old.state = 'running' and new.state = 'settled' then
    insert into audit values ('dataset settled', new.dataset_id, null, null);
  end if;
  return new;
end $$;
create trigger audit_datasets after update on datasets for each row execute function audit_datasets();

create function audit_runs() returns trigger language plpgsql as $$ begin
  if old.state in ('completed', 'failed', 'cancelled') then
    insert into audit values ('RUN AFTER ITS END', null, null, new.run_id);
  elsif new.attempt <> old.attempt then
    insert into audit values ('run claimed', null, new.attempt, new.run_id);
  end if;
  return new;
end $$;
create trigger audit_runs after update on runs for each row execute function audit_runs();
